"""Work that was done before: from the window that saw it to what a check may ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import no_window, recorded, torch

from perfdoctor.evidence.model import Missing, Parts, Step
from perfdoctor.evidence.windows import repeated

STEP = Step(
    *("optimizer", 50, 1.0, 5, 4, 0, 0.0, 0.0, 20.0, Parts(input_wait=2.0, forward=6.0, backward=8.0, other=4.0)),
    *(20.0, 0.1, 19.0, 21.0, 18.0, 18.0, 0.0, 1.0, 32.0, 1.0),
)
SITES = (
    torch(cwd="/job"),
    {"k": "site", "id": 1, "file": "/job/train.py", "line": 5, "function": "main"},
    {"k": "site", "id": 2, "file": "/job/train.py", "line": 6, "function": "main"},
)
ROW = {
    "at": 1,
    "first_at": 2,
    "is_unchanged": False,
    "ops_per_step": 4.0,
    "forward_ms": 2.0,
    "backward_ms": 1.0,
    "operators": ["addmm"],
}


def _seen(**fields: Any) -> dict[str, Any]:
    return {"k": "window", "name": "repeats", "first_step": 25, "rows": [ROW], **fields}


def test_operators_that_took_longer_than_a_step_are_told_as_in_an_ordinary_one(tmp_path: Path) -> None:
    room_ms = STEP.step_ms - STEP.parts.input_wait - STEP.parts.gc
    (row,) = repeated(recorded(tmp_path, *SITES, _seen(ops_ms=4 * room_ms)), STEP)  # type: ignore[misc]
    assert (row.forward_ms, row.backward_ms) == pytest.approx((0.5, 0.25))
    assert (row.at.line, row.first_at.line) == (5, 6)
    assert row.operators == ("addmm",)


def test_those_that_took_less_are_told_as_they_were_seen(tmp_path: Path) -> None:
    rows = [{**ROW, "first_at": None}]
    (row,) = repeated(recorded(tmp_path, *SITES, _seen(rows=rows, ops_ms=0.001)), STEP)  # type: ignore[misc]
    assert (row.forward_ms, row.first_at) == (2.0, None)


@pytest.mark.parametrize(
    ("records", "reason"),
    [((), "not reached"), ((no_window("repeats", "the job uses torch.compile"),), "torch.compile")],
)
def test_what_was_not_seen_says_why(tmp_path: Path, records: tuple[dict[str, Any], ...], reason: str) -> None:
    found = repeated(recorded(tmp_path, *records), STEP)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_without_a_steady_step_it_has_no_cost(tmp_path: Path) -> None:
    unsteady = Missing("too few steps")
    assert repeated(recorded(tmp_path, *SITES, _seen(ops_ms=1.0)), unsteady) is unsteady
