"""What runs for each sample of an evaluation's batch, from the lines of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import no_window, recorded, site, torch, window

from perfdoctor.evidence.evaluation import by_sample
from perfdoctor.evidence.model import Missing

SITES = (torch(), site(1, 62), site(2, 63), site(3, 61), site(4, 60))


def line(number: int, runs: float, ms: float, part: str = "other", called: bool = False) -> dict[str, Any]:
    return {
        "site": number,
        "part": part,
        "called": called,
        "ms_per_step": ms,
        "share": 0.0,
        "runs_per_step": runs,
    }


LOOP = (line(2, 32.0, 3.0), line(1, 33.0, 1.0), line(3, 1.0, 4.0), line(4, 1.0, 9.0, "forward"))


def found(path: Path, *lines: dict[str, Any]) -> Any:
    return by_sample(recorded(path, *SITES, window("evaluation", lines=lines, total_ms=17.0)), 32)


def test_lines_of_a_loop_over_samples_have_their_share_of_what_is_no_forward_pass(tmp_path: Path) -> None:
    lines = found(tmp_path, *LOOP)
    assert [one.site.line for one in lines] == [62, 63]
    # What runs once, and was watched to take 4 ms, takes a quarter of it.
    assert [one.share for one in lines] == pytest.approx([0.2, 0.6])


@pytest.mark.parametrize(
    "lines",
    [
        (line(2, 10.0, 3.0), line(1, 11.0, 1.0)),
        (line(2, 320.0, 3.0), line(1, 321.0, 1.0)),
        (line(2, 32.0, 3.0, "input_wait", called=True),),
        (),
    ],
    ids=["classes", "all pairs of samples and classes at once", "a data set's", "none"],
)
def test_other_loops_are_none_over_samples(tmp_path: Path, lines: tuple[dict[str, Any], ...]) -> None:
    assert found(tmp_path, *lines) == ()


def test_without_the_window_the_reason_is_given(tmp_path: Path) -> None:
    for records, reason in (((), "no second batch"), ((no_window("evaluation", "a debugger traces"),), "a debugger")):
        lines = by_sample(recorded(tmp_path, *records), 32)
        assert isinstance(lines, Missing) and reason in lines.reason
