"""Anomaly detection that was left on."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.aside import METRIC_LINE, validated
from ill_runs.cpu_ops import SWITCH_LINE, anomaly_detection
from ill_runs.debugging import (
    ASSERT_LINE,
    DETERMINISTIC_LINE,
    MODE_LINE,
    PROFILER_LINE,
    TRACED_LINE,
    asserting,
    debug_allocator,
    default_device,
    deterministic,
    mode_left_on,
    profiled,
    profiled_calls,
    searched,
    tracing,
)
from perfdoctor.checks import cpu_ops, evaluation_and_logging, optimizer
from perfdoctor.checks.debugging_left_on import CHECK, examine
from samples import healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Severity
from perfdoctor.evidence.model import CallSite, DebuggingAid, Deterministic, Evidence, Missing, Modes


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_anomaly_detection_is_found_with_its_cost_and_the_line_that_switched_it_on() -> None:
    finding = _found(anomaly_detection())
    assert finding.id == "PD16.anomaly-detection" and finding.fix.remedies == ("debug.off",)
    assert finding.location is not None and finding.location.line == SWITCH_LINE.line
    assert "this line left" in finding.message and finding.severity is Severity.ERROR
    assert (number(finding, "traces"), number(finding, "checks")) == (80, 90)
    assert number(finding, "cost_ms") == pytest.approx(12.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(9.0), pytest.approx(13.2))


def test_without_the_line_of_the_switch_one_of_the_loop_is_shown_and_not_blamed() -> None:
    finding = _found(anomaly_detection(detail=""))
    assert "this line" not in finding.message and "is on" in finding.message


def test_no_more_is_saved_than_the_two_passes_take() -> None:
    finding = _found(with_(anomaly_detection(traces_ms=20.0), step__parts=with_(healthy().step.parts, forward=9.0)))
    assert finding.savings.high_ms == pytest.approx(9.0 + 14.0)


@pytest.mark.parametrize(("ms", "count"), [(0.0, 0), (1.2, 0), (1.3, 1)])
def test_anomaly_detection_counts_from_a_twentieth_of_the_step_on(ms: float, count: int) -> None:
    assert len(ids(examine(anomaly_detection(traces_ms=ms, checks_ms=0.0), CHECK.limits))) == count


def test_an_aid_whose_cost_cannot_be_told_is_named_and_alarms_nobody() -> None:
    aids = (DebuggingAid("Python's development mode", "unset PYTHONDEVMODE"),)
    outcome = examine(with_(healthy(), debugging=aids), CHECK.limits)
    assert is_clear(outcome) and "cannot be told" in outcome.reason
    assert [m.value for m in outcome.measurements if m.name == "aids"] == ["Python's development mode"]
    assert "cannot be told" not in examine(healthy(), CHECK.limits).reason


def test_on_a_gpu_the_search_for_nan_waits_for_the_device_too() -> None:
    finding = _found(on_gpu(anomaly_detection()))
    assert finding.savings.low_ms == pytest.approx(0.75 * 9.0) and finding.savings.high_ms == pytest.approx(13.2)
    assert finding.confidence is Confidence.MEDIUM and "waits for the device" in finding.savings.method
    assert _found(anomaly_detection()).confidence is Confidence.HIGH


def test_a_profiler_that_records_every_step_is_found_with_its_cost() -> None:
    finding = _found(profiled())
    assert finding.id == "PD16.profiler-left-on" and finding.fix.remedies == ("debug.no-profiler",)
    assert finding.location is not None and finding.location.line == PROFILER_LINE.line
    assert number(finding, "timed_ms") == pytest.approx(3.75)
    assert number(finding, "cost_ms") == pytest.approx(6.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(3.6), pytest.approx(9.6))


CYCLES = (CallSite("profiler.step", PROFILER_LINE, 1.0, 4.0),)


def cycling(other_ms: float = 5.0, **changes: Any) -> Evidence:
    """A tenth of the steps are profiled; so much of a step is neither pass, nor update, nor waiting for a batch."""
    return with_(profiled(**{"share": 0.1, "cycles": CYCLES, **changes}), step__parts__other=other_ms)


def test_what_a_profiler_takes_where_its_cycles_end_is_part_of_its_cost() -> None:
    """Every few steps it sorts what it recorded, and writes a trace."""
    finding = _found(cycling())
    assert number(finding, "cycles_ms") == 4.0 and number(finding, "cost_ms") == pytest.approx(4.6)
    assert finding.savings.low_ms == pytest.approx(0.36 + 3.6) and finding.savings.high_ms == pytest.approx(0.96 + 4.4)
    assert "`step()` takes {cycles_ms}" in finding.reasoning
    alone = _found(cycling(timing=Missing("the job was gone")))
    assert number(alone, "cost_ms") == 4.0 and "timed in the job's process" not in alone.reasoning
    ended = cycling(share=0.0, ending_share=0.2)
    assert is_clear(examine(ended, CHECK.limits)), "its schedule is over"


def test_no_more_of_them_counts_than_an_ordinary_step_has_room_for() -> None:
    """In steps that a window watches, a cycle has more to write."""
    dear = cycling(other_ms=3.0, cycles=(with_(CYCLES[0], ms_per_step=90.0),))
    assert number(_found(dear), "cycles_ms") == 3.0


@pytest.mark.parametrize(
    "changes",
    [
        {"share": 0.0, "ending_share": 1.0},
        {"share": 0.1},
        {"ops_per_step": 300.0},
        {"timing__on_ms": 0.30},
    ],
    ids=["it ends by its schedule", "a tenth of the steps", "few operators", "it costs an operator nothing"],
)
def test_a_profiler_that_ends_or_costs_little_is_no_finding(changes: dict[str, Any]) -> None:
    assert is_clear(examine(profiled(**changes), CHECK.limits))


def test_an_emitter_of_ranges_needs_no_schedule() -> None:
    finding = _found(profiled(options=("emit_nvtx",)))
    assert "emit_nvtx(enabled" in finding.fix.code and "schedule" not in finding.fix.code


@pytest.mark.parametrize("part", ["timing", "ops_per_step"])
def test_a_profiler_whose_cost_was_not_measured_is_named_and_alarms_nobody(part: str) -> None:
    outcome = examine(profiled(**{part: Missing("the job was gone")}), CHECK.limits)
    assert is_clear(outcome) and "cannot be told" in outcome.reason
    assert [m.value for m in outcome.measurements if m.name == "aids"] == ["the job's own profiler"]


def test_what_a_profiler_costs_is_said_where_it_is_little() -> None:
    outcome = examine(profiled(share=0.1), CHECK.limits)
    assert "profiler {profiler_ms}" in outcome.reason
    assert [m.value for m in outcome.measurements if m.name == "profiler_ms"] == [pytest.approx(0.6)]


def test_deterministic_algorithms_are_found_by_what_the_passes_took_without() -> None:
    finding = _found(deterministic(unfilled_ms=19.8))
    assert finding.id == "PD16.deterministic-algorithms" and finding.location is not None
    assert finding.location.line == DETERMINISTIC_LINE.line
    assert number(finding, "cost_ms") == pytest.approx(22.0 / 4)
    assert finding.fix.remedies == ("debug.no-deterministic",) and "fill new memory" not in finding.message


def test_where_filling_memory_is_most_of_it_results_stay_reproducible() -> None:
    finding = _found(deterministic())
    assert finding.fix.remedies == ("debug.no-fill",) and "fill new memory" in finding.message


@pytest.mark.parametrize(("off_ms", "count"), [(20.5, 0), (19.0, 0), (18.8, 1)])
def test_deterministic_algorithms_count_from_a_twentieth_of_the_step_on(off_ms: float, count: int) -> None:
    assert len(ids(examine(deterministic(off_ms=off_ms), CHECK.limits))) == count


def test_deterministic_algorithms_that_were_not_timed_are_named() -> None:
    untimed = Deterministic(DETERMINISTIC_LINE, Missing("the parameters are not on the CPU"))
    outcome = examine(with_(healthy(), deterministic=untimed), CHECK.limits)
    assert is_clear(outcome) and "cannot be told" in outcome.reason


def test_asserts_on_tensors_are_found_by_what_their_lines_take() -> None:
    finding = _found(asserting())
    assert finding.id == "PD16.tested-tensors" and finding.message.startswith("asserts on tensors")
    assert finding.location is not None and finding.location.line == ASSERT_LINE.line
    assert number(finding, "cost_ms") == pytest.approx(3.0) and finding.savings.low_ms == pytest.approx(2.1)
    assert "NaN" in _found(asserting(purpose="nan_test")).message


@pytest.mark.parametrize(("ms", "purpose"), [(1.2, "assert"), (3.0, "")])
def test_tests_that_cost_little_and_reads_for_another_purpose_are_none_of_this_check(ms: float, purpose: str) -> None:
    assert is_clear(examine(asserting(ms, purpose), CHECK.limits))


def test_lines_that_test_tensors_are_told_once() -> None:
    for check in (cpu_ops.CHECK, optimizer.CHECK):
        assert ids(check.examine(asserting(), check.limits)) == []
    assert ids(cpu_ops.CHECK.examine(asserting(purpose=""), cpu_ops.CHECK.limits)) == ["PD10.scalar-reads"]


def test_on_a_gpu_a_test_costs_what_the_host_waited_at_most() -> None:
    call = CallSite("scalar_read", ASSERT_LINE, 12.0, 4.0, "other", purpose="assert")
    finding = _found(on_gpu(with_(asserting(), call_sites=(call,))))
    assert finding.confidence is Confidence.MEDIUM and finding.savings.low_ms < 0.2 * finding.savings.high_ms


def test_traced_allocations_are_found_by_what_steps_take_without() -> None:
    finding = _found(tracing())
    assert finding.id == "PD16.traced-allocations" and finding.severity is Severity.ERROR
    assert finding.confidence is Confidence.HIGH
    assert finding.location is not None and finding.location.line == TRACED_LINE.line
    working_ms = healthy().step.working_ms
    assert number(finding, "cost_ms") == pytest.approx(0.52 * working_ms)
    assert finding.savings.low_ms == pytest.approx(0.52 * working_ms)
    assert finding.savings.high_ms == pytest.approx(1.35 * 0.52 * working_ms)


def test_of_two_rounds_the_range_is_both() -> None:
    finding = _found(tracing(rounds=2))
    assert finding.confidence is Confidence.MEDIUM
    assert finding.savings.low_ms < 0.01 * finding.savings.high_ms


@pytest.mark.parametrize(("untraced_ms", "count"), [(25.5, 0), (24.0, 0), (23.6, 1)])
def test_traced_allocations_count_from_a_twentieth_of_the_step_on(untraced_ms: float, count: int) -> None:
    assert len(ids(examine(tracing(untraced_ms), CHECK.limits))) == count


def test_tracing_that_was_timed_is_told_by_its_cost_and_else_by_its_name() -> None:
    aids = (DebuggingAid("tracing of Python's allocations", "unset PYTHONTRACEMALLOC", "tracing"),)
    timed = examine(with_(tracing(24.5), debugging=aids), CHECK.limits)
    assert is_clear(timed) and "tracing_ms" in timed.reason and "cannot be told" not in timed.reason
    untimed = examine(with_(healthy(), debugging=aids), CHECK.limits)
    assert [m.value for m in untimed.measurements if m.name == "aids"] == ["tracing of Python's allocations"]


def test_traced_calls_are_found_by_what_steps_take_without_and_told_by_who_traces_them() -> None:
    finding = _found(profiled_calls())
    assert finding.id == "PD16.traced-calls" and finding.confidence is Confidence.HIGH
    assert finding.location is not None and finding.location.line == PROFILER_LINE.line
    assert [m.value for m in finding.evidence if m.name == "tracer"] == ["cProfile"]
    working_ms = healthy().step.working_ms
    assert number(finding, "cost_ms") == pytest.approx(0.28 * working_ms)
    assert finding.savings.low_ms == pytest.approx(finding.savings.high_ms) == pytest.approx(0.28 * working_ms)
    assert is_clear(examine(profiled_calls(24.5), CHECK.limits))


def test_a_debugging_allocator_is_found_by_what_an_interpreter_takes_longer_with_it() -> None:
    finding = _found(debug_allocator())
    assert finding.id == "PD16.debugging-allocator" and finding.fix.code == "unset PYTHONMALLOC"
    python_ms = number(finding, "python_ms")
    assert python_ms == pytest.approx(healthy().step.working_ms - 10.0)
    assert finding.savings.low_ms == pytest.approx(0.2 * python_ms)
    assert finding.savings.high_ms == pytest.approx(0.6 * python_ms)


@pytest.mark.parametrize(
    "evidence",
    [debug_allocator(operators_ms=24.0), debug_allocator(allocating=1.1, calling=1.0), debug_allocator(0.98, 0.97)],
    ids=["little Python", "hardly dearer", "no dearer"],
)
def test_a_debugging_allocator_that_costs_little_is_told_by_its_cost(evidence: Evidence) -> None:
    outcome = examine(evidence, CHECK.limits)
    assert is_clear(outcome) and "cannot be told" not in outcome.reason


def test_a_debugging_allocator_that_was_not_timed_is_named() -> None:
    outcome = examine(with_(debug_allocator(), allocator=Missing("it was not timed")), CHECK.limits)
    assert is_clear(outcome) and "cannot be told" in outcome.reason


def test_a_counter_of_flops_is_found_with_what_its_python_takes_and_is_to_count_once() -> None:
    finding = _found(mode_left_on())
    assert finding.id == "PD16.mode-left-on" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == MODE_LINE.line
    assert number(finding, "cost_ms") == pytest.approx(10.0) and finding.confidence is Confidence.HIGH
    assert "if flops is None" in finding.fix.code
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(8.0), pytest.approx(13.0))


def test_another_mode_is_to_be_switched_on_now_and_then() -> None:
    finding = _found(mode_left_on(name="NanWatch", kind="function", calls_per_step=90.0))
    assert "with NanWatch()" in finding.fix.code and "call of torch" in finding.reasoning


def test_a_default_device_is_told_by_its_own_words() -> None:
    finding = _found(default_device())
    assert finding.id == "PD16.default-device" and "device=" in finding.fix.code
    assert number(finding, "calls") == 2_500


@pytest.mark.parametrize(("ms", "share", "count"), [(1.2, 1.0, 0), (1.3, 1.0, 1), (10.0, 0.1, 0), (13.0, 0.1, 1)])
def test_a_mode_counts_from_a_twentieth_of_the_step_on(ms: float, share: float, count: int) -> None:
    outcome = examine(mode_left_on(ms, share), CHECK.limits)
    assert len(ids(outcome)) == count
    assert count or "modes of the job's own" in outcome.reason


def test_a_mode_that_was_not_timed_is_named_and_alarms_nobody() -> None:
    outcome = examine(with_(healthy(), modes=Modes(1.0, Missing("the job uses torch.compile"))), CHECK.limits)
    assert is_clear(outcome) and "cannot be told" in outcome.reason
    assert [m.value for m in outcome.measurements if m.name == "aids"] == ["a mode of the job's own around its steps"]


@pytest.mark.parametrize(("ms", "count"), [(1.2, 0), (1.3, 1), (8.0, 1)])
def test_a_search_for_overflows_is_told_by_the_time_of_its_calls(ms: float, count: int) -> None:
    outcome = examine(searched(ms), CHECK.limits)
    assert ids(outcome) == ["PD16.searched-modules"] * count
    for finding in outcome.findings:
        assert finding.location is not None and finding.location.line == MODE_LINE.line
        assert finding.savings.low_ms == pytest.approx(0.9 * ms)
        assert number(finding, "each_ms") == pytest.approx(ms / 100)


def test_what_distributions_test_is_one_opportunity_for_all_lines_and_no_metric() -> None:
    run = validated()
    finding = _found(run)
    assert (finding.id, finding.severity) == ("PD16.validated-distributions", Severity.NOTE)
    assert finding.fix.remedies == ("debug.no-validation",)
    assert finding.location is not None and finding.location.line == METRIC_LINE.line
    assert finding.savings.low_ms == pytest.approx(0.85 * 1.5 + 240 * 0.002)
    assert finding.savings.high_ms == pytest.approx(1.15 * 1.5 + 240 * 0.010)
    assert is_clear(evaluation_and_logging.examine(run, evaluation_and_logging.CHECK.limits))


@pytest.mark.parametrize("changes", [{"forward_ms": 0.1, "ops_per_step": 20.0}, {"operators": ("gt", "all")}])
def test_few_tests_and_other_work_are_not_what_distributions_cost(changes: dict[str, Any]) -> None:
    assert is_clear(examine(validated(**changes), CHECK.limits))
