"""Work that was done before: from the window that saw it to what a check may ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import no_window, recorded, torch

from perfdoctor.evidence.model import Missing, Parts, Step, SubnormalNumbers
from perfdoctor.evidence.windows import repeated, subnormals

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


FADED = {
    "k": "window",
    "name": "subnormals",
    "first_step": 30,
    "ops_ms": 20.0,
    "met_ms": 12.0,
    "forward_ms": 1.0,
    "backward_ms": 6.0,
    "optimizer_ms": 2.0,
    "share": 0.3,
    "operators": ["mm"],
    "at": 2,
}


def test_what_subnormal_numbers_cost_is_told_as_in_an_ordinary_step(tmp_path: Path) -> None:
    seen = _seen(ops_ms=10.0, asks=["subnormals"])
    found = subnormals(recorded(tmp_path, *SITES, seen, {**FADED, "ops_ms": 36.0}), STEP)
    assert isinstance(found, SubnormalNumbers)
    assert found.saved_ms == pytest.approx(9.0 * 18.0 / 36.0)
    assert not isinstance(found.at, Missing) and found.at.line == 6


def test_where_few_subnormal_numbers_were_met_nobody_looked_closer(tmp_path: Path) -> None:
    assert subnormals(recorded(tmp_path, *SITES, _seen(ops_ms=10.0)), STEP) is None


def test_a_job_that_ended_before_the_closer_look_says_so(tmp_path: Path) -> None:
    found = subnormals(recorded(tmp_path, *SITES, _seen(ops_ms=10.0, asks=["subnormals"])), STEP)
    assert isinstance(found, Missing) and "ended before" in found.reason
