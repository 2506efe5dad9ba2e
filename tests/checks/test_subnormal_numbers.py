"""Subnormal numbers: told by what they cost, and not because some are met."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.dtype import BACKWARD_LINE, faded
from ill_runs.growth import trend
from perfdoctor.checks import slower_over_time
from perfdoctor.checks.dtype import CHECK, examine
from samples import healthy, ids, is_clear, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, Missing, Parts, StepGrowth


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_they_are_told_with_the_part_and_the_line_that_take_most() -> None:
    finding = _found(faded())
    assert finding.id == "PD07.subnormal-numbers" and finding.severity is Severity.ERROR
    assert "backward pass" in finding.message
    assert finding.location is not None and finding.location.line == BACKWARD_LINE.line
    assert "set_flush_denormal(True)" in finding.fix.code


def test_all_three_parts_are_saved() -> None:
    saved = _found(faded()).savings
    assert (saved.low_ms, saved.high_ms) == pytest.approx((0.7 * 15.0, 1.15 * 15.0))


def test_the_part_that_is_named_is_the_dearest() -> None:
    assert "optimizer's step" in _found(faded(optimizer_ms=11.0)).message
    assert "forward pass" in _found(faded(forward_ms=12.0)).message


@pytest.mark.parametrize(("saved_ms", "count"), [(0.0, 0), (1.2, 0), (1.3, 1)])
def test_they_count_from_a_twentieth_of_the_step_on(saved_ms: float, count: int) -> None:
    """On some CPUs they cost nothing."""
    found = examine(faded(forward_ms=0.0, backward_ms=saved_ms, optimizer_ms=0.0), CHECK.limits)
    assert len(ids(found)) == count


@pytest.mark.parametrize("seen", [None, Missing("not reached")])
def test_none_met_and_nobody_looked_are_no_finding(seen: Any) -> None:
    assert is_clear(examine(with_(healthy(), subnormals=seen), CHECK.limits))


def test_steps_that_grow_by_them_are_not_unexplained() -> None:
    """From 10 to 30 ms."""
    grown = StepGrowth(trend(Parts(backward=20.0)))
    told = slower_over_time.examine(with_(faded(), growth=grown), slower_over_time.CHECK.limits)
    assert is_clear(told) and "PD07" in told.reason
    little = slower_over_time.examine(with_(faded(backward_ms=1.0), growth=grown), slower_over_time.CHECK.limits)
    assert "nothing that the job keeps explains" in little.reason
