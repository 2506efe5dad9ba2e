"""Work whose result is there already: what it costs, and where it is told."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.repeated_work import AGAIN_LINE, FIRST_LINE, repeated, unchanged
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import healthy, ids, is_clear, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, Missing


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_a_second_computation_is_told_at_its_line_with_the_first() -> None:
    finding = _found(repeated())
    assert finding.id == "PD10.repeated-work"
    assert finding.location is not None and finding.location.line == AGAIN_LINE.line
    assert "{first_at}" in finding.message
    assert {one.name: one.value for one in finding.evidence}["first_at"] == str(FIRST_LINE)
    assert finding.severity is Severity.WARNING


def test_it_saves_its_operators_their_part_of_the_backward_pass_and_the_python_around_them() -> None:
    saved = _found(repeated()).savings
    assert saved.low_ms == pytest.approx(0.85 * 4.0 + 0.5 * 2.0 + 12 * 0.002)
    assert saved.high_ms == pytest.approx(1.15 * 6.0 + 12 * 0.010)


def test_where_one_line_computes_both_it_says_so() -> None:
    finding = _found(repeated(first_at=None))
    assert "more than once" in finding.message and "{first_at}" not in finding.message


def test_what_every_step_computes_anew_is_to_be_computed_before_the_loop() -> None:
    finding = _found(unchanged())
    assert finding.id == "PD10.unchanged-work"
    assert "before the loop" in finding.fix.text
    assert "backward" not in finding.reasoning


def test_a_model_on_a_batch_that_never_changes_is_a_benchmark() -> None:
    stand_in = {"on_same_data": True, "of_parameters": True}
    assert ids(examine(unchanged(**stand_in), CHECK.limits)) == []
    assert ids(examine(unchanged(**{**stand_in, "of_parameters": False}), CHECK.limits)) == ["PD10.unchanged-work"]
    assert ids(examine(unchanged(**{**stand_in, "on_same_data": False}), CHECK.limits)) == ["PD10.unchanged-work"]
    assert ids(examine(repeated(**stand_in), CHECK.limits)) == ["PD10.repeated-work"]


@pytest.mark.parametrize(("forward_ms", "count"), [(0.0, 0), (1.1, 0), (1.3, 1)])
def test_it_counts_from_a_twentieth_of_the_step_on(forward_ms: float, count: int) -> None:
    found = examine(repeated(forward_ms=forward_ms, backward_ms=0.0, ops_per_step=1.0), CHECK.limits)
    assert len(ids(found)) == count


def test_many_small_operators_cost_the_python_around_them() -> None:
    """600 operators of a microsecond: most of what they take is dispatch."""
    assert ids(examine(repeated(forward_ms=0.6, backward_ms=0.0, ops_per_step=600.0), CHECK.limits))


def test_each_line_is_a_finding_of_its_own() -> None:
    (other,) = unchanged().repeated_work  # type: ignore[misc]
    found = ids(examine(repeated(with_(other, at=FIRST_LINE)), CHECK.limits))
    assert sorted(found) == ["PD10.repeated-work", "PD10.unchanged-work"]


@pytest.mark.parametrize(
    "changes", [{"repeated_work": ()}, {"repeated_work": Missing("not reached")}], ids=["nothing", "not seen"]
)
def test_nothing_repeated_and_nothing_seen_are_no_finding(changes: dict[str, Any]) -> None:
    assert is_clear(examine(with_(healthy(), **changes), CHECK.limits))
