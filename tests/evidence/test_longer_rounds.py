"""What comes once in many steps and takes longer each time, with what is kept for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import WALL_US, recorded, selected, site, steps, window

from perfdoctor.evidence import longer_rounds
from perfdoctor.evidence.model import LongerRounds

ADDS, USES, TRAINS = 1, 2, 3
OUTPUTS = {
    "name": "self.outputs",
    "kind": "list",
    "length": 40,
    "per_step": 0.2,
    "tensors": 1.0,
    "graphs": 0.0,
    "bytes_per_step": 10,
    "site": ADDS,
    "uses": [ADDS, USES],
    "passed_to": ["cat"],
}
BEYOND_MS = (90, 20, 22, 40, 60, 80, 100)
"""The first warms up."""


def _built(
    directory: Path,
    beyond_ms: tuple[int, ...] = BEYOND_MS,
    ran: tuple[int, ...] = (ADDS, USES),
    in_a_step: int = TRAINS,
    **container: Any,
) -> LongerRounds | None:
    walls = [WALL_US] * 155
    for number, ms in enumerate(beyond_ms, 1):
        walls[20 * number] += 1000 * ms
    line = {"part": "forward", "called": True, "ms_per_step": 1.0, "share": 1.0, "site": in_a_step}
    recording = recorded(
        directory,
        *(site(number, line=number) for number in (ADDS, USES, TRAINS)),
        steps(walls),
        {"k": "long_steps", "step": 70, "at": 20, "length": 20},
        window("lines", lines=[line], total_ms=1.0),
        window("between", rows=[], equivalents=[], ops_ms=1.0, lines=[], total_ms=1.0, ran=list(ran)),
        {"k": "growth", "step": 154, "graphs": [], "containers": [{**OUTPUTS, **container}]},
    )
    return longer_rounds.build(recording, selected(recording))


def test_rounds_that_get_longer_are_told_with_the_container_and_the_line_that_goes_through_it(tmp_path: Path) -> None:
    found = _built(tmp_path)
    assert found is not None
    assert (found.every, found.count, found.kept.name, found.gone_through_at.line) == (20, 6, "self.outputs", USES)
    assert (found.early_ms, found.late_ms) == (pytest.approx(21.0), pytest.approx(90.0))


def test_what_a_library_keeps_may_grow_in_steps(tmp_path: Path) -> None:
    """A metric that is never reset: `update` in each step, `compute` in each round."""
    found = _built(tmp_path, in_a_step=ADDS, ran=(ADDS, USES), site=-1, per_step=1.0, length=150)
    assert found is not None
    assert (found.kept.site, found.gone_through_at.line) == (None, USES)
    found = _built(tmp_path, site=-1, length=150)
    assert found is not None and found.gone_through_at.line == USES, "both in each round"


@pytest.mark.parametrize(
    "changes",
    [
        {"beyond_ms": (90, 20, 22, 21, 20, 22, 20)},  # as long as at first
        {"beyond_ms": (90, 20, 60, 40, 30, 80, 50)},  # longer by chance
        {"ran": (ADDS,)},  # never gone through
        {"in_a_step": USES},  # by each step
        {"per_step": 0.01},  # not in each round
        {"site": -1, "per_step": 1.0, "length": 25},  # emptied after each
    ],
)
def test_others_are_left_alone(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert _built(tmp_path, **changes) is None
