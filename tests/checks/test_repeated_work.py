"""Work whose result is there already: what it costs, and where it is told."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.cpu_ops import element_loop
from ill_runs.repeated_work import AGAIN_LINE, FIRST_LINE, POSITIONS_LINE, computed_again, repeated, unchanged
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import DEVICE_BOUND, healthy, ids, is_clear, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Finding, Part, Severity
from perfdoctor.evidence.model import EpochStarts, Evidence, Missing
from perfdoctor.report import wording


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


def test_it_takes_no_more_than_where_python_runs_and_its_part_of_the_backward_pass() -> None:
    """4,000 operators, each of which may take 10 us more by what is around it, in 8.6 ms of forward pass and loop."""
    many = _found(repeated(ops_per_step=4_000.0, forward_ms=8.0, backward_ms=0.0)).savings
    assert many.high_ms == pytest.approx(8.6)
    learned = _found(repeated(ops_per_step=4_000.0, forward_ms=8.0, backward_ms=1.0)).savings
    assert learned.high_ms == pytest.approx(8.6 + 14.0)


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


# ---------------------------------------------------------------------------------------------------------
# Functions that return the same


def test_a_function_that_returns_the_same_in_every_step_is_told_at_the_line_that_calls_it() -> None:
    finding = _found(computed_again())
    assert (finding.id, finding.severity) == ("PD10.same-result", Severity.WARNING)
    assert wording.fill(finding.message, finding.evidence) == (
        "`positions()` returns the same in every step: 3.00 ms per step (12 %)"
    )
    assert finding.location is not None and finding.location.line == POSITIONS_LINE.line
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((0.85 * 3.0, 3.0))


@pytest.mark.parametrize(
    ("changes", "count"), [({"ms_per_step": 1.2}, 0), ({"ms_per_step": 1.3}, 1), ({"part": "input_wait"}, 0)]
)
def test_it_counts_where_it_costs_the_loop_a_twentieth_of_the_step(changes: dict[str, Any], count: int) -> None:
    assert len(ids(examine(computed_again(**changes), CHECK.limits))) == count


def test_on_a_busy_device_the_host_has_time_for_it() -> None:
    busy = with_(on_gpu(computed_again()), device=DEVICE_BOUND)
    assert ids(examine(busy, CHECK.limits)) == []


def test_operators_that_are_most_of_the_function_are_told_in_its_place() -> None:
    """By their line, which calls the function, or by one inside of it."""
    for at in (POSITIONS_LINE, with_(POSITIONS_LINE, file="model.py", line=9, function="positions")):
        evidence = with_(computed_again(), repeated_work=unchanged(at=at, forward_ms=4.0).repeated_work)
        assert ids(examine(evidence, CHECK.limits)) == ["PD10.unchanged-work"]
        evidence = with_(computed_again(), repeated_work=unchanged(at=at, forward_ms=1.5).repeated_work)
        assert ids(examine(evidence, CHECK.limits)) == ["PD10.same-result"]


def test_a_loop_over_elements_inside_of_it_is_told_with_it() -> None:
    loop = element_loop(share=0.4, file="model.py", function="angle")
    assert ids(examine(loop, CHECK.limits)) == ["PD10.element-loop"]
    both = with_(loop, same_results=computed_again().same_results)
    assert ids(examine(both, CHECK.limits)) == ["PD10.same-result"]


def test_what_an_evaluation_computes_for_each_batch_anew_is_to_be_computed_before_them() -> None:
    (one,) = repeated(first_at=None).repeated_work  # type: ignore[misc]
    starts = EpochStarts((), (one,), (), 0, every_steps=50, ms=800.0, regular=False)
    finding = _found(with_(healthy(), epoch_starts=starts, step__irregular_ms=16.0))
    assert finding.id == "PD10.repeated-work" and finding.savings.part is Part.EPOCH
    assert "between two steps" in finding.message and "{every}" in finding.message
    assert {one.name: one.value for one in finding.evidence}["operators"] == 12.0 * 50
    assert "before the loop over batches" in finding.fix.code
