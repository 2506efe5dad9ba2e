"""Lines of the user's code: from the line window, and from a batch that a worker made, to an ordinary step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import NOWHERE, boundary, recorded, site, worker

from perfdoctor.evidence.code_lines import code_lines, making
from perfdoctor.evidence.model import Missing, Parts, Step
from perfdoctor.evidence.places import Places

STEP = Step(
    *("optimizer", 50, 1.0, 5, 4, 0, 0.0, 20.0, Parts(input_wait=12.0, forward=6.0, other=2.0)),
    *(20.0, 0.1, 19.0, 21.0, 18.0, 18.0, 0.0, 1.0, 32.0, 1.0),
)
ROWS = (
    {"site": 1, "part": "input_wait", "called": True, "us": 9000},
    {"site": 2, "part": "input_wait", "called": False, "us": 1000},
    {"site": 2, "part": "forward", "called": False, "us": 8000},
    {"site": 9, "part": "forward", "called": False, "us": 100},
)
TOTALS = {"input_wait": 12_000, "forward": 8000}
SITES = (site(1, 40, "/home/ann/job/data.py", "features"), site(2, 90))


def window(**fields: Any) -> dict[str, Any]:
    return {"k": "window", "name": "lines", "first": 10, "step": 12, "steps": 2, **fields}


def test_a_line_costs_its_share_of_its_part_of_an_ordinary_step(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window(lines=ROWS, lines_us=TOTALS))
    found = code_lines(process, Places(process.sites, "/home/ann/job"), STEP)
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
        ((window(missing="a debugger or a coverage tool traces the job's lines"),), "debugger"),
    ],
)
def test_without_the_window_the_reason_is_given(tmp_path: Path, records: tuple[Any, ...], reason: str) -> None:
    found = code_lines(recorded(tmp_path, *records), NOWHERE, STEP)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_without_a_step_there_are_no_milliseconds(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window(lines=ROWS, lines_us=TOTALS))
    assert code_lines(process, NOWHERE, Missing("too few steps")) == Missing("too few steps")


def test_batches_made_in_the_training_process_are_made_by_what_was_called_while_waiting(tmp_path: Path) -> None:
    process = recorded(tmp_path, *SITES, window(lines=ROWS, lines_us=TOTALS))
    (line,) = making(process, (), 0, "/home/ann/job")
    assert (line.site.file, line.site.line, line.share) == ("data.py", 40, 0.75)


def test_the_worker_with_the_longest_batch_speaks_for_all(tmp_path: Path) -> None:
    rows = [{"site": 1, "part": "other", "called": True, "us": 600}, {"site": 2, "called": False, "us": 400}]
    makers = [
        recorded(tmp_path, worker(), *SITES, {"k": "making", "lines": rows, "lines_us": {"other": total}}, pid=pid)
        for pid, total in ((101, 1000), (102, 800))
    ]
    idle = recorded(tmp_path, worker(), pid=103)
    (line,) = making(idle, [*makers, idle], 3, "/home/ann/job")
    assert (line.site.line, line.share) == (40, 0.6)
    assert making(idle, [idle], 1, "") == ()


def test_an_older_recording_has_no_lines_of_the_making(tmp_path: Path) -> None:
    assert making(recorded(tmp_path), (), 0, "") == ()


def test_a_window_on_steps_of_another_kind_is_not_used(tmp_path: Path) -> None:
    """An agent that acts before it learns: those steps were forwards."""
    acting = window(lines=ROWS[:1], lines_us=TOTALS)
    change = boundary("optimizer", 96)
    early = recorded(tmp_path, boundary("forward"), *SITES, acting, change)
    assert early.code_lines is None
    learning = window(lines=ROWS, lines_us=TOTALS) | {"first": 106}
    late = recorded(tmp_path, boundary("forward"), *SITES, acting, change, learning)
    assert late.code_lines is not None
    assert len(late.code_lines.lines) == len(ROWS)
