"""What comes again between two steps: what it costs, and which steps hold it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import batches, boundary, iterator, loader, recorded, selected, site, steps
from recordings import window as recorded_window

from perfdoctor.evidence import steady
from perfdoctor.evidence.epoch_starts import build
from perfdoctor.evidence.model import EpochStarts, Missing
from perfdoctor.recording.model import ProcessRecording

SITES = (site(1, 64, function="train_dataloader"), site(2, 30, function="features"))
EPOCHS = [50_000 + 350_000 * (number % 25 == 0 and number > 0) for number in range(200)]
"""Microseconds of steps, of which every 25th starts an epoch."""
ROW = {
    "function": "features",
    "at": 1,
    "defined_at": 2,
    "part": "other",
    "calls_per_step": 1.0,
    "arguments": 1,
    "ms_per_step": 300.0,
}
LONG = {"k": "long_steps", "step": 52, "at": 25, "length": 25}


def _job(folder: Path, *rows: dict[str, Any], starts: int = 2, walls: list[int] = EPOCHS, **cycle: Any) -> Any:
    more = [{"k": "cycle", **cycle}] if cycle else []
    seen = recorded_window("epochs", starts=starts, rows=list(rows))
    marked = [75, 76, 100, 101]
    return recorded(folder, *SITES, boundary("optimizer"), steps(walls, marked=marked), LONG, seen, *more)


def _built(process: ProcessRecording) -> EpochStarts:
    selection = selected(process)
    found = build(process, selection, steady.measure(process, selection))
    assert isinstance(found, EpochStarts)
    return found


def test_it_is_told_with_how_often_it_comes_and_what_such_a_step_takes_longer(tmp_path: Path) -> None:
    found = _built(_job(tmp_path, ROW))
    assert (found.every_steps, found.starts, found.regular) == (25, 2, False)
    assert found.ms == pytest.approx(350.0)
    (row,) = found.rows
    assert (row.ms_per_step, row.at.line) == (300.0, 64)


def test_nothing_takes_more_than_such_a_step_has(tmp_path: Path) -> None:
    (row,) = _built(_job(tmp_path, {**ROW, "ms_per_step": 500.0})).rows
    assert row.ms_per_step == pytest.approx(350.0)


def test_without_a_loader_such_steps_are_irregular_too(tmp_path: Path) -> None:
    process = _job(tmp_path, ROW)
    selection = selected(process)
    assert selection.rows["step"][selection.irregular].tolist() == [25, 50, 125, 150, 175]
    step = steady.measure(process, selection)
    assert step.step_ms == pytest.approx(50.0)
    # Those that were watched took as long before.
    assert selection.watched == 2
    assert step.irregular_ms == pytest.approx(7 * 350 / selection.span)


def test_of_such_steps_that_were_all_watched_what_they_wait_for_counts(tmp_path: Path) -> None:
    starts = [25, 50, 75]
    waits = [300_000 if number in starts else 0 for number in range(100)]
    process = recorded(tmp_path, boundary("optimizer"), steps(EPOCHS[:100], marked=starts, input_wait_us=waits), LONG)
    selection = selected(process)
    assert not selection.irregular.any() and selection.watched == 3
    assert steady.measure(process, selection).irregular_ms == pytest.approx(3 * 300 / selection.span)


def test_steps_that_were_expected_to_take_long_and_do_not_are_as_the_others(tmp_path: Path) -> None:
    selection = selected(_job(tmp_path, ROW, walls=[50_000] * 200))
    assert not selection.irregular.any()


def test_where_whole_cycles_are_steady_they_hold_it(tmp_path: Path) -> None:
    process = _job(tmp_path, ROW, step=100, length=25, at=25)
    selection = selected(process)
    assert not selection.irregular.any() and selection.cycle == 25
    found = build(process, selection, steady.measure(process, selection))
    assert isinstance(found, EpochStarts) and found.regular


def test_the_making_of_batches_for_training_is_what_other_steps_do_too(tmp_path: Path) -> None:
    waits = [{**ROW, "part": "input_wait", "loader": number} for number in (1, 2, -1)]
    drawn = [(step, number) for step in range(200) for number in ((2, 1) if step in (25, 50, 125) else (1,))]
    process = recorded(
        tmp_path,
        *SITES,
        boundary("optimizer"),
        loader(1),
        loader(2),
        iterator(0, loader=1),
        batches([step for step, _ in drawn], 100, loader=[number for _, number in drawn]),
        steps(EPOCHS),
        LONG,
        recorded_window("epochs", starts=3, rows=waits),
    )
    assert [row.loader for row in _built(process).rows] == [2]


def test_one_start_alone_says_nothing(tmp_path: Path) -> None:
    assert _built(_job(tmp_path, ROW, starts=1)).rows == ()
    bare = recorded(tmp_path, boundary("optimizer"), steps(EPOCHS))
    assert build(bare, selected(bare), Missing("no step")) is None


REPEATED = {
    "at": 1,
    "first_at": None,
    "on_same_data": False,
    "of_parameters": True,
    "is_unchanged": False,
    "ops_per_step": 50.0,
    "forward_ms": 100.0,
    "backward_ms": 0.0,
    "operators": ["linear"],
}
SORTED = {
    "kind": "rank",
    "at": 2,
    "then_at": 2,
    "times_per_step": 8.0,
    "shape": [64, 1000],
    "forward_ms": 80.0,
    "backward_ms": 0.0,
    "other_forward_ms": 10.0,
    "other_backward_ms": 0.0,
}


def test_what_lies_between_two_steps_is_spread_over_all_of_them(tmp_path: Path) -> None:
    watched = recorded_window("between", rows=[REPEATED], equivalents=[SORTED], ops_ms=700.0)
    process = recorded(tmp_path, *SITES, boundary("optimizer"), steps(EPOCHS), LONG, watched)
    found = _built(process)
    (again,), (other,) = found.repeated, found.equivalents
    # Of 700 ms of operators 350 fit between the steps; they come once in 25 steps.
    assert (again.forward_ms, again.ops_per_step) == (pytest.approx(100 / 2 / 25), pytest.approx(50 / 25))
    assert (other.forward_ms, other.other_forward_ms) == (pytest.approx(80 / 50), pytest.approx(10 / 50))
    assert other.times_per_step == pytest.approx(8 / 25)
    assert found.rows == ()


def test_what_was_timed_apart_takes_that_long_between_two_steps_too(tmp_path: Path) -> None:
    rows = [SORTED, {**SORTED, "kind": "taken-apart"}]
    watched = recorded_window("between", rows=[REPEATED], equivalents=rows, ops_ms=700.0)
    process = recorded(tmp_path, *SITES, boundary("optimizer"), steps(EPOCHS), LONG, watched)
    watched_ms, apart_ms = (one.forward_ms for one in _built(process).equivalents)
    assert apart_ms == pytest.approx(2 * watched_ms)
