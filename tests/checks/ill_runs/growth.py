"""Runs whose steps get longer."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import (
    AlikeHandlers,
    AlikeHooks,
    Evidence,
    GrowingContainer,
    GrowingGraph,
    GrowingHooks,
    GrowingLine,
    GrowingTensor,
    GrowingWork,
    LoggingLine,
    LongerRounds,
    Parts,
    RepeatedHandlers,
    RepeatedHooks,
    Site,
    SlowerBatches,
    Slowing,
    StepGrowth,
    Trend,
    Wrapped,
)

from .checkpoints import checkpoints

APPEND_LINE = Site("train.py", 70, "main")
MEAN_LINE = Site("train.py", 71, "main")
CARRY_LINE = Site("model.py", 20, "forward")

HISTORY = GrowingContainer("history", "list", 400, 1.0, 1.0, 0.0, 4, APPEND_LINE, (APPEND_LINE, MEAN_LINE))
STATE = GrowingGraph("self.state", 1_200, 3.0, CARRY_LINE)

CAT_LINE = Site("train.py", 75, "main")
FAR_LINE = Site("train.py", 73, "main")
BACKWARD_LINE = Site("train.py", 74, "main")
ITEM_LINE = Site("data.py", 12, "__getitem__")
SEEN = GrowingContainer(
    "dataset.seen", "list", 900, 32.0, 0.0, 0.0, 0, Site("data.py", 11, "__getitem__"), (ITEM_LINE,)
)
BANK = GrowingTensor("bank", 4_000_000, 10_000, CAT_LINE, (CAT_LINE, FAR_LINE))

HOOK_LINE = Site("loss.py", 8, "hook")
REGISTER_LINE = Site("loss.py", 20, "activations")
TAPS = GrowingHooks("register_forward_hook", "criterion.net.0", 4, 3_200, 8.0, REGISTER_LINE, (), ("hook",))

CHECK_LINE = Site("train.py", 9, "call")
WRAP_LINE = Site("train.py", 18, "guard")
CHECKED = Wrapped("checked", False, 40, 0.1, WRAP_LINE, (CHECK_LINE,))
POOLED = Wrapped("ConcatDataset", True, 30, 0.1, WRAP_LINE)


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


def growing_tensor(named: float = 0.3, passes: float = 0.6, **changes: Any) -> Evidence:
    """A bank of embeddings that is made larger in every step, and what is computed from all of it: `named` of the
    growth in its lines, `passes` in the backward pass."""
    lines = (
        GrowingLine(BACKWARD_LINE, "backward", 8.0, 8.0 + 20.0 * passes, passes),
        GrowingLine(FAR_LINE, "forward", 0.2, 0.2 + 20.0 * named, named),
    )
    found = StepGrowth(trend(Parts(forward=8.0, backward=12.0)), (), (), lines, (BANK,))
    parts = Parts(input_wait=0.3, forward=12.0, backward=14.0, optimizer=2.0, other=1.7)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))


def slower_loader(batches: SlowerBatches | None = None, **changes: Any) -> Evidence:
    """Two workers whose data set keeps what it has seen: from 30 ms per batch to 70, of which the loop waits for 20."""
    line = GrowingLine(ITEM_LINE, "other", 1.0, 38.0, 0.9)
    made = batches or SlowerBatches(
        "Patches", 2, 30.0, 70.0, 1.2, 20.0, 39.0, Site("train.py", 20, "main"), (SEEN,), (line,)
    )
    found = StepGrowth(trend(Parts(input_wait=20.0)), batches=made)
    parts = Parts(input_wait=12.0, forward=7.0, backward=8.0, optimizer=2.0, other=1.0)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))


def growing_file(**changes: Any) -> Evidence:
    """Every tenth step writes the whole history: from 100 kB to 900."""
    return checkpoints(early_bytes=100_000, late_bytes=900_000, contents=None, **changes)


def slowed(
    kind: str = "swapping", early: float = 0.0, late: float = 0.5, grown_ms: float = 12.0, **more: Any
) -> Evidence:
    """Nothing that the job keeps grows, and something outside does: from 20 ms to 40, 13 of them between the thirds."""
    return growing(None, lines=(), slowing=(Slowing(kind, early, late, grown_ms, **more),))  # type: ignore[arg-type]


SAME = AlikeHooks(
    "register_forward_hook",
    "model.blocks.0",
    9,
    3.0,
    True,
    Site("train.py", 95, "Report.attach"),
    Site("train.py", 98, "Report.record"),
)
"""A hook of nine layers that each epoch registers anew: the third one runs."""


def repeated_hooks(ms: float = 6.0, planned: int = 0, **changes: Any) -> Evidence:
    """Of a step of 25 ms, so much in the lines of the hook."""
    seen = RepeatedHooks(with_(SAME, **changes), ms, 150)
    steady = Trend(200, 25.0, 25.2, -0.02, 0.03, False, Parts(), 0.0)
    return with_(healthy(), growth=StepGrowth(steady, planned_steps=planned, repeated_hooks=(seen,)))


HANDLERS = AlikeHandlers("train", "FileHandler", 12, True, Site("setup.py", 14, "configure"))
"""Each epoch adds one for the same file."""
LOG_LINE = LoggingLine("logging", Site("train.py", 41, "train_epoch"), 1.0, 6.5)


def repeated_handlers(planned: int = 0, **changes: Any) -> Evidence:
    """Of a step of 25 ms, 6.5 in a line that logs."""
    seen = RepeatedHandlers(with_(HANDLERS, **changes), 264)
    steady = Trend(200, 25.0, 25.2, -0.02, 0.03, False, Parts(), 0.0)
    growth = StepGrowth(steady, planned_steps=planned, repeated_handlers=(seen,))
    parts = Parts(forward=6.0, backward=10.0, optimizer=2.5, logging=6.5)
    return with_(healthy(), step=step(parts), growth=growth, logging=(LOG_LINE,))


def growing_hooks(hooks: GrowingHooks = TAPS, **changes: Any) -> Evidence:
    """Hooks that are registered anew in every step: their own line takes 20 ms more in the end."""
    line = GrowingLine(HOOK_LINE, "forward", 0.1, 18.0, 0.9)
    found = StepGrowth(trend(Parts(forward=20.0)), lines=(line,), hooks=(hooks,))
    parts = Parts(input_wait=0.3, forward=18.0, backward=10.0, optimizer=2.0, other=0.2)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))


def growing_wrappers(wrapped: Wrapped = CHECKED, **changes: Any) -> Evidence:
    """A method that each epoch wraps anew: the wrapper's own line takes 20 ms more in the end."""
    line = GrowingLine(CHECK_LINE, "forward", 0.1, 18.0, 0.9)
    found = StepGrowth(trend(Parts(forward=20.0)), lines=(line,), wrapped=(wrapped,))
    parts = Parts(input_wait=0.3, forward=18.0, backward=10.0, optimizer=2.0, other=0.2)
    return with_(healthy(), step=step(parts), growth=with_(found, **changes))


def longer_rounds(planned_steps: int = 0, **changes: Any) -> Evidence:
    """Evaluations every 30 steps of 30 ms, whose outputs nobody clears: 20 ms at first, 200 ms in the eighth."""
    outputs = GrowingContainer(
        "self.outputs", "list", 64, 8 / 30, 1.0, 0.0, 4_000, APPEND_LINE, (APPEND_LINE, MEAN_LINE)
    )
    rounds = LongerRounds(30, 7, 20.0, 200.0, 100.0, outputs, MEAN_LINE)
    found = StepGrowth(trend(Parts()), planned_steps=planned_steps, rounds=with_(rounds, **changes))
    return with_(healthy(), step__irregular_ms=4.0, growth=found)


def expanding_window(planned_steps: int = 0, **work: Any) -> Evidence:
    """Statistics over all days so far, in the 200 steps seen: 5 of the 25 ms."""
    line = GrowingWork(
        at=Site("train.py", 44, "known_scale"),
        forward_ms=5.0,
        ops_per_step=1.0,
        numbers=100_000,
        more=1_000,
        operators=("std_mean",),
        steps=200,
    )
    growth = with_(healthy(), growth__planned_steps=planned_steps)
    return with_(growth, growing_work=(with_(line, **work),))
