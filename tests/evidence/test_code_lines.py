"""Lines of the user's code: from the line window, and from a batch that a worker made, to an ordinary step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import boundary, no_window, recorded, site, torch, worker
from recordings import window as recorded_window

from perfdoctor.evidence.lines import (
    code_lines,
    late_sharding,
    making,
    making_here,
    same_making,
    same_making_here,
    same_results,
)
from perfdoctor.evidence.model import Missing, Parts, Step
from perfdoctor.recording.lines import LinesWindow

STEP = Step(
    *("optimizer", 50, 1.0, 5, 4, 0, 0.0, 0.0, 20.0, Parts(input_wait=12.0, forward=6.0, other=2.0)),
    *(20.0, 0.1, 19.0, 21.0, 18.0, 18.0, 0.0, 1.0, 32.0, 1.0),
)
ROWS = (
    {"site": 1, "part": "input_wait", "called": True, "ms_per_step": 4.5, "share": 0.75},
    {"site": 2, "part": "forward", "called": False, "ms_per_step": 4.0, "share": 1.0},
    {"site": 2, "part": "input_wait", "called": False, "ms_per_step": 0.5, "share": 1 / 12},
)
SITES = (torch(), site(1, 40, "/home/ann/job/data.py", "features"), site(2, 90))


def window(**fields: Any) -> dict[str, Any]:
    return recorded_window("lines", lines=ROWS, total_ms=9.0) | fields


def test_a_line_costs_its_share_of_its_part_of_an_ordinary_step(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window())
    found = code_lines(process, STEP)
    assert not isinstance(found, Missing)
    assert [(line.site.file, line.site.line, line.part) for line in found] == [
        ("data.py", 40, "input_wait"),
        ("train.py", 90, "forward"),
        ("train.py", 90, "input_wait"),
    ]
    assert [line.ms_per_step for line in found] == pytest.approx([9.0, 6.0, 1.0])
    assert [line.share for line in found] == pytest.approx([0.75, 1.0, 1 / 12])


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ((), "not reached"),
        ((no_window("lines", "a debugger or a coverage tool traces the job's lines"),), "debugger"),
    ],
)
def test_without_the_window_the_reason_is_given(tmp_path: Path, records: tuple[Any, ...], reason: str) -> None:
    found = code_lines(recorded(tmp_path, *records), STEP)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_without_a_step_there_are_no_milliseconds(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window())
    assert code_lines(process, Missing("too few steps")) == Missing("too few steps")


def test_batches_made_in_the_training_process_are_made_by_what_was_called_while_waiting(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window())
    (line,) = making_here(process, [1], 1.0)
    assert (line.site.file, line.site.line, line.share) == ("data.py", 40, 0.75)


def test_the_worker_with_the_longest_batch_speaks_for_all(tmp_path: Path) -> None:
    makers = []
    for pid, total_ms in ((101, 1.0), (102, 0.8)):
        rows = [
            {"site": 1, "part": "other", "called": True, "ms_per_step": 0.6, "share": 0.6 / total_ms},
            {"site": 2, "part": "other", "called": False, "ms_per_step": 0.4, "share": 0.4 / total_ms},
        ]
        making_record = {"k": "making", "lines": rows, "total_ms": total_ms}
        makers.append(recorded(tmp_path, worker(), *SITES, making_record, pid=pid))
    idle = recorded(tmp_path, worker(), pid=103)
    (line,) = making([*makers, idle])
    assert (line.site.line, line.share) == (40, 0.6)
    assert making([idle]) == ()


def test_without_the_window_there_are_no_lines_of_the_making(tmp_path: Path) -> None:
    assert making_here(recorded(tmp_path), [1], 1.0) == ()


def _of_two(*loaders: list[list[Any]]) -> dict[str, Any]:
    """Of the wait 60 % at a line of one data set, 30 % at one of another, and the rest in libraries."""
    shares = zip((0.6, 0.3), loaders, strict=True)
    rows = [
        {"site": number, "part": "input_wait", "called": True, "ms_per_step": share, "share": share, "loaders": mine}
        for number, (share, mine) in enumerate(shares, 1)
    ]
    return recorded_window("lines", lines=rows, total_ms=1.0)


@pytest.mark.parametrize(
    ("loader", "times", "shares"),
    [
        (1, 1.5, {40: 0.9}),  # it has two thirds of the wait
        (2, 3.0, {90: 0.9}),
        (1, 2.0, {40: 1.0}),  # it has half of the wait elsewhere, and had more of it in the window
        (3, 4.0, {}),
    ],
)
def test_a_line_that_makes_batches_for_one_loader_is_none_of_the_others(
    tmp_path: Path, loader: int, times: float, shares: dict[int, float]
) -> None:
    process = recorded(tmp_path, *SITES, _of_two([[1, 1.0]], [[2, 1.0]]))
    assert {line.site.line: line.share for line in making_here(process, [loader], times)} == pytest.approx(shares)


def test_a_line_that_two_data_sets_share_has_a_part_of_either(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, _of_two([[1, 0.75], [2, 0.25]], [[2, 1.0]]))
    found = [making_here(process, [loader], 2.0) for loader in (1, 2)]
    assert [{line.site.line: line.share for line in lines} for lines in found] == [
        pytest.approx({40: 0.9}),
        pytest.approx({90: 0.6, 40: 0.3}),
    ]


def test_an_older_recording_has_all_lines_for_every_loader(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window())
    assert making_here(process, [1], 3.0) == making_here(process, [1], 1.0)


SAME = {
    "function": "bank",
    "at": 1,
    "defined_at": 2,
    "within": [2],
    "part": "input_wait",
    "calls_per_step": 8.0,
    "arguments": 1,
    "ms_per_step": 8.0,
}


def test_a_function_costs_what_it_takes_and_no_more_than_its_part(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, recorded_window("same", rows=[SAME, {**SAME, "part": "other"}]))
    found = same_results(process, STEP)
    assert not isinstance(found, Missing)
    assert [(one.part, one.ms_per_step, one.at.line) for one in found] == [("input_wait", 8.0, 40), ("other", 2.0, 40)]
    (making_one,) = same_making_here(process, [1], 2.0)
    assert (making_one.part, making_one.ms_per_step, making_one.calls_per_step) == ("input_wait", 4.0, 4.0)
    assert isinstance(same_results(recorded(tmp_path), STEP), Missing)
    assert same_making_here(recorded(tmp_path), [1], 1.0) == ()


def test_a_function_that_makes_batches_for_one_loader_is_none_of_the_others(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, recorded_window("same", rows=[{**SAME, "loader": 1}]))
    assert [len(same_making_here(process, loaders, 1.0)) for loaders in ([0, 1], [2])] == [1, 0]


def test_of_workers_the_one_speaks_that_lost_least(tmp_path: Path) -> None:
    rows = [[{**SAME, "ms_per_step": ms}] for ms in (6.0, 4.0)]
    makers = [
        recorded(tmp_path, worker(), *SITES, {"k": "same_making", "rows": row}, pid=101 + number)
        for number, row in enumerate(rows)
    ]
    idle = recorded(tmp_path, worker(), pid=104)
    (found,) = same_making([*makers, idle])
    assert found.ms_per_step == 4.0


def _sharding(tmp_path: Path, *each: tuple[dict[str, Any], ...]) -> Any:
    """By rows of a worker each."""
    base = {"site": 1, "samples": 4, "shards": 2, "share": 0.9}
    makers = [
        recorded(
            tmp_path,
            worker(),
            *SITES,
            {"k": "late_sharding", "rows": [{**base, **row} for row in rows]},
            pid=101 + number,
        )
        for number, rows in enumerate(each)
    ]
    return late_sharding([*makers, recorded(tmp_path, worker(), pid=120)])


def test_shares_are_kept_where_each_worker_keeps_another_one(tmp_path: Path) -> None:
    found = _sharding(tmp_path, ({"share_number": 0, "share": 0.9},), ({"share_number": 1, "share": 0.8},))
    assert (found.site.line, found.shards, found.share) == (40, 2, 0.8)
    assert found.discarded_share == pytest.approx(0.4)


def test_the_dearest_of_such_lines_is_told(tmp_path: Path) -> None:
    cheap, dear = {"site": 1, "share": 0.1}, {"site": 2, "share": 0.7}
    workers = [({**cheap, "share_number": mine}, {**dear, "share_number": mine}) for mine in (0, 1)]
    assert _sharding(tmp_path, *workers).site.line == 90


def test_one_worker_or_one_share_is_no_division(tmp_path: Path) -> None:
    assert _sharding(tmp_path, ({"share_number": 0},)) is None
    assert _sharding(tmp_path, ({"share_number": 0},), ({"share_number": 0},)) is None
    assert _sharding(tmp_path, ({"share_number": 0},), ()) is None
    assert _sharding(tmp_path) is None


def test_a_window_on_steps_of_another_kind_is_not_used(tmp_path: Path) -> None:
    """An agent that acts before it learns: those steps were forwards."""
    acting = window(lines=ROWS[:1])
    change = boundary("optimizer", 96)
    early = recorded(tmp_path, boundary("forward"), *SITES, acting, change)
    assert early.code_lines is None
    learning = window() | {"first_step": 106}
    late = recorded(tmp_path, boundary("forward"), *SITES, acting, change, learning)
    assert isinstance(late.code_lines, LinesWindow)
    assert len(late.code_lines.lines) == len(ROWS)
