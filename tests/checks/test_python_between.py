"""Functions that compute without torch between two steps."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import DRAW_LINE, drawn_each_epoch
from ill_runs.debugging import profiled
from perfdoctor.checks.cpu_ops import CHECK
from samples import asked, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Part, Severity
from perfdoctor.evidence.model import CallSite, SameResult, Site

examined, found = asked(CHECK)


def test_the_function_is_told_at_its_dearest_line_spread_over_the_steps() -> None:
    """400 ms, each 50 steps, beside steps of 25 ms."""
    finding = found(drawn_each_epoch(400.0))
    assert (finding.id, finding.severity) == ("PD10.python-between-steps", Severity.NOTE)
    assert finding.location is not None and finding.location.line == DRAW_LINE.line
    assert (number(finding, "cost_ms"), number(finding, "every")) == (pytest.approx(8.0), 50)
    assert number(finding, "worst_share") == pytest.approx(0.75)
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((2.4, 8.0))
    assert finding.savings.part is Part.EPOCH


def test_where_a_profilers_cycle_ends_is_told_as_the_profilers() -> None:
    cycles = (CallSite("profiler.step", DRAW_LINE, 1.0, 6.0),)
    beside = with_(drawn_each_epoch(1200.0), profiled=profiled(cycles=cycles).profiled)
    finding = found(beside)
    assert finding.location is not None and finding.location.line == 35, "the next dear line of that function"
    assert number(finding, "cost_ms") == pytest.approx(6.0)


@pytest.mark.parametrize(("ms", "fires"), [(100.0, False), (200.0, True)])
def test_a_tenth_of_the_loops_time_is_enough(ms: float, fires: bool) -> None:
    """That is spread over 50 steps of 25 ms, and what comes on top of them."""
    assert ("PD10.python-between-steps" in ids(examined(drawn_each_epoch(ms)))) is fires


def test_what_comes_out_the_same_each_time_is_told_as_that() -> None:
    seen = drawn_each_epoch(400.0)
    again = SameResult("draw", Site("train.py", 30, "main"), with_(DRAW_LINE, line=31), "other", 1.0, 1, 300.0)
    assert is_clear(examined(with_(seen, epoch_starts=with_(seen.epoch_starts, rows=(again,)))))


def test_lines_that_make_batches_are_left_to_others() -> None:
    assert is_clear(examined(drawn_each_epoch(400.0, part="input_wait")))
