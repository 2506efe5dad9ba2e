"""Runs whose steps get longer."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import (
    Evidence,
    GrowingContainer,
    GrowingGraph,
    GrowingLine,
    Parts,
    Site,
    StepGrowth,
    Trend,
)

APPEND_LINE = Site("train.py", 70, "main")
MEAN_LINE = Site("train.py", 71, "main")
CARRY_LINE = Site("model.py", 20, "forward")

HISTORY = GrowingContainer("history", "list", 400, 1.0, 1.0, 0.0, 4, APPEND_LINE, (APPEND_LINE, MEAN_LINE))
STATE = GrowingGraph("self.state", 1_200, 3.0, CARRY_LINE)


def trend(gained: Parts, **changes: Any) -> Trend:
    """From 20 ms by what the parts gained, over 400 steps, with an interval of a tenth of that."""
    late = 20.0 + gained.total
    share = gained.total / 20.0
    made = Trend(400, 20.0, late, 0.9 * share, 1.1 * share, True, gained, gained.total - gained.input_wait)
    return with_(made, **changes)


def growing(container: GrowingContainer | None = HISTORY, gained: float = 20.0, **changes: Any) -> Evidence:
    """The mean of a list, taken in every step: from 20 ms to 40, in the line that names the list."""
    line = GrowingLine(MEAN_LINE, "other", 0.2, 0.2 + gained, 0.95)
    found = StepGrowth(trend(Parts(other=gained)), (container,) if container else (), (), (line,))
    parts = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=0.2 + gained / 2)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))


def deeper_graph(**changes: Any) -> Evidence:
    """A state that is never detached: the backward pass takes 20 ms more in the end."""
    found = StepGrowth(trend(Parts(forward=0.5, backward=20.0)), (), (STATE,))
    parts = Parts(input_wait=0.3, forward=8.0, backward=20.0, optimizer=2.0, other=0.2)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))
