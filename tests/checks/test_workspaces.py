from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ill_runs.workspaces import (
    TRIM_LINE,
    checkpointed,
    churn,
    cuda_allocator,
    emptied_cache,
    graph_in_evaluation,
    trimmed,
    unused_gradients,
)
from ills import ILL
from perfdoctor.checks.workspaces import CHECK
from samples import HOT_LINES, asked, healthy, ids, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Evidence, Missing, Site

_examined, _found = asked(CHECK)


def _with_teacher(backward_ms: float, aside: bool = True, **changes: Any) -> Evidence:
    """A teacher of one layer in evaluation mode, 8 ms forward in each step, and so long in the backward pass."""
    evidence = graph_in_evaluation(8.0, step__irregular_ms=0.0, **changes)
    assert not isinstance(evidence.layers, Missing)
    teacher = with_(evidence.layers.layers[0], backward_ms=backward_ms, aside=aside)
    return with_(evidence, layers__layers=(teacher, *evidence.layers.layers[1:]))


def test_the_backward_pass_through_a_teacher_is_billed_with_its_graph() -> None:
    finding = _found(_with_teacher(6.0))
    assert number(finding, "backward_ms") == 6.0
    assert finding.savings.low_ms == pytest.approx(0.05 * 8.0 + 0.8 * 6.0)
    assert finding.savings.high_ms == pytest.approx(0.27 * 8.0 + 6.0)
    assert "runs through it" in finding.reasoning


def test_layers_that_are_computed_again_are_an_opportunity_where_there_is_memory() -> None:
    finding = _found(checkpointed())
    assert finding.id == "PD08.needless-checkpointing" and finding.severity is Severity.NOTE
    assert number(finding, "kept_bytes") == 200_000_000
    assert finding.savings.low_ms == pytest.approx(0.7 * number(finding, "cost_ms"))
    assert "gradient_checkpointing=False" in (_found(checkpointed(trainer="transformers")).fix.code or "")
    assert is_clear(_examined(checkpointed(kept_ms=9.8)))


def test_gradients_that_somebody_uses_are_not_the_teachers() -> None:
    """Those of the trained model, and of a model that a gradient goes through on its way to another."""
    assert number(_found(_with_teacher(6.0, aside=False)), "backward_ms") == 0.0
    assert number(_found(_with_teacher(6.0, step__boundary="forward")), "backward_ms") == 0.0


@pytest.mark.parametrize("part", ["step", "memory"])
def test_without_steps_or_counters_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# The C allocator


def test_page_faults_are_found_with_the_variables_to_set() -> None:
    finding = _found(ILL["PD08.allocator-churn"])
    assert finding.id == "PD08.allocator-churn"
    assert finding.is_opportunity and finding.confidence is Confidence.LOW
    assert finding.savings.part is Part.COMPUTE
    for variable in ("MALLOC_MMAP_THRESHOLD_=", "MALLOC_TRIM_THRESHOLD_=", "MALLOC_TOP_PAD_="):
        assert variable in finding.fix.code


def test_memory_that_the_job_gives_back_itself_is_told_in_place_of_the_allocator() -> None:
    finding = _found(ILL["PD08.memory-trimmed"])
    assert finding.id == "PD08.memory-trimmed" and not finding.is_opportunity
    assert finding.location is not None and finding.location.line == TRIM_LINE.line
    # The call's 1.5 ms, and of the page faults' 6 ms a third at least.
    assert finding.savings.low_ms == pytest.approx(1.5 + 0.3 * 6.0)


@pytest.mark.parametrize(
    "changes", [{"code_lines": ()}, {"job__options": ()}, {"code_lines": Missing("no step was watched")}]
)
def test_a_call_that_no_step_was_seen_to_make_is_not_to_blame(changes: dict[str, Any]) -> None:
    assert _found(trimmed(**changes)).id == "PD08.allocator-churn"


@pytest.mark.parametrize(("forward", "line"), [(600.0, 20), (100.0, 42), (0.0, None)])
def test_page_faults_are_those_of_the_line_that_allocates_most(forward: float, line: int | None) -> None:
    backward, dearest, *others = HOT_LINES
    faults = 4000.0 if forward else 0.0
    lines = (with_(backward, faults_per_step=faults), with_(dearest, faults_per_step=forward), *others)
    location = _found(churn(hot_lines=lines)).location
    assert (location and location.line) == line


def test_the_measured_gain_of_the_thresholds_lies_in_the_predicted_range() -> None:
    """188,000 faults and 381 of 881 ms in the kernel; with raised thresholds the step took 1.77 times less."""
    evidence = churn(188_000 * 1.8e-3, system_ms=381.0, machine__page_fault_ns=500.0)
    scale = 881.0 / 25.0
    parts = {f"step__parts__{name}": ms * scale for name, ms in evidence.step.parts.as_dict().items()}  # type: ignore[union-attr]
    saved = _found(with_(evidence, step__step_ms=881.0, **parts)).savings
    assert saved.low_ms <= 881.0 * (1 - 1 / 1.77) * 1.01
    assert saved.high_ms >= 881.0 * (1 - 1 / 1.77) * 0.99


@pytest.mark.parametrize(("faults_ms", "count"), [(4.4, 0), (4.6, 1), (5.1, 1)])
def test_faults_count_by_what_they_may_cost(faults_ms: float, count: int) -> None:
    assert len(_examined(churn(faults_ms)).findings) == count


def test_system_time_from_reading_files_is_not_the_allocators() -> None:
    outcome = _examined(churn(faults_ms=0.2, system_ms=12.0))
    assert is_clear(outcome)
    assert number(outcome, "system_share") > 0.3


def test_faults_that_the_kernel_took_no_time_for_are_not_blamed() -> None:
    assert is_clear(_examined(churn(faults_ms=20.0, system_ms=1.0)))


def test_faults_cannot_take_longer_than_the_kernel_worked() -> None:
    finding = _found(churn(faults_ms=20.0, system_ms=6.0))
    assert number(finding, "cost_ms") == pytest.approx(6.0)
    assert finding.savings.ceiling_ms == pytest.approx(6.0)


def test_without_the_timing_of_a_fault_system_time_has_no_name() -> None:
    busy_kernel = churn(machine__page_fault_ns=None)
    assert _examined(busy_kernel).kind is OutcomeKind.CANNOT_TELL
    assert is_clear(_examined(with_(busy_kernel, memory__system_cpu_ms=0.3)))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"memory__allocator": "jemalloc"}, "dirty_decay_ms"),
        ({"memory__malloc_settings": (("MALLOC_MMAP_THRESHOLD_", "1000000"),)}, "dirty_decay_ms"),
        ({"memory__malloc_settings": (("MALLOC_ARENA_MAX", "2"),)}, "MALLOC_MMAP_THRESHOLD_="),
    ],
)
def test_the_fix_suits_the_allocator_and_its_settings(changes: dict[str, Any], code: str) -> None:
    assert code in _found(churn(**changes)).fix.code


# ---------------------------------------------------------------------------------------------------------
# empty_cache


def test_emptying_the_cache_in_the_loop_is_found_at_its_line() -> None:
    finding = _found(ILL["PD08.empty-cache"])
    assert finding.id == "PD08.empty-cache"
    assert finding.location is not None and finding.location.line == 61
    assert finding.savings.low_ms == pytest.approx(2.0)  # the calls are measured, allocating anew is not


@pytest.mark.parametrize(("cost_ms", "count"), [(1.2, 0), (1.3, 1)])
def test_calls_count_from_five_per_cent_of_the_step_on(cost_ms: float, count: int) -> None:
    assert len(_examined(emptied_cache(cost_ms)).findings) == count


# ---------------------------------------------------------------------------------------------------------
# Evaluation with gradients


def test_a_graph_in_validation_is_billed_beside_the_steady_step() -> None:
    finding = _found(ILL["PD08.grad-in-evaluation"])
    assert finding.id == "PD08.grad-in-evaluation"
    assert finding.savings.part is Part.EPOCH
    assert finding.location is not None and finding.location.function == "validate"
    assert "inference_mode" in finding.fix.code


@pytest.mark.parametrize("boundary", ["optimizer", "forward"])
def test_a_graph_of_a_frozen_teacher_or_of_inference_is_in_the_step(boundary: str) -> None:
    evidence = graph_in_evaluation(10.0, step__boundary=boundary, step__irregular_ms=0.3)
    assert _found(evidence).savings.part is Part.COMPUTE


def test_a_teacher_inside_the_step_may_be_walked_by_the_backward_pass() -> None:
    finding = _found(graph_in_evaluation(8.0, step__irregular_ms=0.0))
    assert finding.savings.part is Part.COMPUTE
    assert "if a later one runs through it" in finding.reasoning
    assert "no_grad" in finding.fix.code  # what inference mode makes could not be a target of the loss


@pytest.mark.parametrize(("forward_ms", "count"), [(4.5, 0), (4.7, 1)])
def test_evaluation_counts_by_what_recording_may_cost(forward_ms: float, count: int) -> None:
    """27 % of the forwards at most: 5 % of 25 ms are 4.63 ms of forwards."""
    assert len(_examined(graph_in_evaluation(forward_ms)).findings) == count


# ---------------------------------------------------------------------------------------------------------
# CUDA


def test_a_healthy_caching_allocator_is_clear() -> None:
    assert is_clear(_examined(on_gpu()))


def test_driver_allocations_without_the_cache_are_found() -> None:
    finding = _found(ILL["PD08.caching-disabled"])
    assert finding.id == "PD08.caching-disabled"
    assert finding.fix.code == "unset PYTORCH_NO_CUDA_MEMORY_CACHING"
    assert finding.savings.low_ms == pytest.approx(40 * 2 * 0.1)


def test_a_cache_that_is_off_is_no_finding_without_a_cost() -> None:
    outcome = _examined(cuda_allocator(caching=False))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in outcome.reason


def test_retries_in_a_full_memory_and_in_a_fragmented_one_are_told_apart() -> None:
    assert _found(ILL["PD08.alloc-retries"]).id == "PD08.alloc-retries"
    assert _found(ILL["PD08.fragmentation"]).id == "PD08.fragmentation"


@pytest.mark.parametrize(("retries", "count"), [(0.0, 0), (0.009, 0), (0.011, 1)])
def test_retries_count_from_one_in_a_hundred_steps_on(retries: float, count: int) -> None:
    assert len(_examined(cuda_allocator(alloc_retries_per_step=retries)).findings) == count


def test_reserved_memory_without_retries_is_fine() -> None:
    assert is_clear(_examined(cuda_allocator(peak_allocated_bytes=1 << 30)))


def test_each_disease_is_a_finding_of_its_own() -> None:
    evidence = with_(ILL["PD08.alloc-retries"], memory__minor_faults=12e6, memory__system_cpu_ms=6.0)
    assert ids(_examined(evidence)) == ["PD08.allocator-churn", "PD08.alloc-retries"]


def test_gradients_that_no_optimizer_uses_cost_their_part_of_the_backward_pass() -> None:
    line = Site("distill.py", 31, "step")
    finding = _found(unused_gradients(6.0, called_at=line))
    assert finding.id == "PD08.unused-gradients"
    assert finding.location == Location("distill.py", 31, "step")
    assert finding.savings.low_ms == pytest.approx(0.05 * 8.0 + 0.8 * 6.0)
    assert finding.savings.high_ms == pytest.approx(0.27 * 8.0 + 6.0)
    assert _found(unused_gradients(6.0)).location is None


def test_a_model_whose_output_is_detached_has_no_backward_pass() -> None:
    assert is_clear(_examined(unused_gradients(0.0)))
    assert is_clear(_examined(with_(unused_gradients(6.0), step__boundary="forward")))
    assert is_clear(_examined(with_(unused_gradients(6.0), layers=Missing("the window was not reached"))))


def test_pages_that_are_copied_after_a_fork_are_not_the_allocators() -> None:
    """12,000 faults a step, of which a step without a start has 2,000."""
    lines = tuple(replace(line, faults_per_step=500.0) for line in HOT_LINES)
    stays = _found(churn(hot_lines=lines))
    assert stays.savings.high_ms == pytest.approx(6.0)
    changes = {"loader__persistent_workers": False, "loader__iterators": 20, "loader__batches_per_iterator": 12.0}
    assert is_clear(_examined(churn(hot_lines=lines, **changes)))
    most = tuple(replace(line, faults_per_step=2000.0) for line in HOT_LINES)
    anew = _found(churn(hot_lines=most, **changes))
    assert number(anew, "cost_ms") == pytest.approx(6.0 * 1.25 * 8000 / 12_000)
