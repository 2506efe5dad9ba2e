"""What happens around an update: loops over parameters, the model's state, gradients that are zeroed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.optimizer import (
    HEADER,
    TIMING,
    clipping,
    copied_model,
    derived_one_by_one,
    factorized,
    parameter_loop,
    refreshed_statistics,
    slow_update,
    state_copies,
    stepped_schedule,
    went_back_again,
    zeroed,
)
from perfdoctor.checks.optimizer import CHECK, examine
from samples import HOT_LINES, healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CodeLine, Evidence, Missing
from perfdoctor.report.wording import filled


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


@pytest.mark.parametrize("part", ["step", "call_sites", "hot_lines"])
def test_without_the_window_nothing_is_claimed(part: str) -> None:
    outcome = examine(with_(healthy(), **{part: Missing("it was not seen")}), CHECK.limits)
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_an_update_is_judged_without_the_window_too() -> None:
    """A job that compiles has none."""
    assert _ids(with_(slow_update(), hot_lines=Missing("the job compiles"))) == ["PD17.slow-update"]


def test_inference_updates_nothing() -> None:
    outcome = examine(with_(healthy(), step__boundary="forward"), CHECK.limits)
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------------------------------------------------
# Loops over parameters


def test_a_window_in_a_step_that_was_disturbed_is_not_believed() -> None:
    """1.5 ms in 240 operators, of which 240 were timed to take 0.02 ms."""
    calm = with_(TIMING, averages_ms=0.02, averages_together_ms=0.005)
    assert is_clear(examine(with_(parameter_loop(), ops__parameters=calm), CHECK.limits))


def test_an_average_by_hand_is_found_with_what_one_operator_takes() -> None:
    finding = _found(parameter_loop())
    assert finding.id == "PD17.parameter-loop" and finding.severity is Severity.WARNING
    assert finding.location is not None and finding.location.line == 12
    assert (number(finding, "cost_ms"), number(finding, "tensors")) == (pytest.approx(3.0), 120)
    assert finding.savings.high_ms == pytest.approx(3.0 * 0.8)
    assert finding.savings.low_ms == pytest.approx(0.6 * 3.0 * 0.8)
    assert finding.savings.part is Part.OTHER


def test_norms_that_are_read_are_another_finding_by_another_timing() -> None:
    finding = _found(parameter_loop(reads=120.0))
    assert finding.id == "PD17.parameter-reads" and number(finding, "reads") == 120
    assert finding.savings.low_ms == pytest.approx(0.8 * 3.0 * 0.7), "in each step, but together"
    assert finding.savings.high_ms == pytest.approx(0.95 * 3.0), "every 50 steps"
    assert "_foreach_norm" in finding.fix.code


def test_large_tensors_take_as_long_together() -> None:
    large = with_(parameter_loop(), ops__parameters=replace(TIMING, averages_together_ms=0.98))
    assert _found(large).savings.high_ms == pytest.approx(0.06)


def test_what_was_not_timed_is_told_with_less_confidence() -> None:
    finding = _found(with_(parameter_loop(), ops__parameters=Missing("they are not on the CPU")))
    assert finding.confidence is Confidence.MEDIUM
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(1.5), pytest.approx(2.7))


def test_a_step_rule_by_hand_is_an_opportunity() -> None:
    finding = _found(parameter_loop(header="for p in group['params']", part="optimizer"))
    assert finding.severity is Severity.NOTE and "own `step`" in finding.message
    assert finding.savings.part is Part.COMPUTE


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (parameter_loop(1.2), False),
        (parameter_loop(1.3), True),
        (parameter_loop(header="for sample in batch"), False),
        (parameter_loop(header="for grad in grads"), True),
        (parameter_loop(part="forward"), False),
        (parameter_loop(part="optimizer", via="torch/optim/adam.py:_single_tensor_adam"), False),
        (clipping(), True),
        (clipping(ops=260.0), False),
        (with_(clipping(), ops__parameters=Missing("not on the CPU")), False),
    ],
)
def test_a_loop_over_parameters_is_told_from_others(run: Evidence, told: bool) -> None:
    """By what it costs, what stands at its head, where it runs, and how many operators clipping takes."""
    assert _ids(run) == ["PD17.parameter-loop"] * told


def test_clipping_tensor_by_tensor_is_one_call_too_many_for_each() -> None:
    finding = _found(clipping())
    assert "clipped one tensor after another" in finding.message and "one call" in finding.fix.text


def test_on_a_gpu_only_what_the_device_can_have_felt_counts() -> None:
    lines = parameter_loop(header=HEADER).hot_lines
    assert _ids(on_gpu(hot_lines=lines, call_sites=())) == ["PD17.parameter-loop"]
    busy = on_gpu(hot_lines=lines, call_sites=(), ops__device_busy_ms=24.8)
    assert is_clear(examine(busy, CHECK.limits))
    read = parameter_loop(reads=120.0)
    assert is_clear(examine(on_gpu(hot_lines=read.hot_lines, call_sites=read.call_sites), CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# Gradients that are zeroed


def test_zeroed_gradients_cost_what_letting_them_go_would_not() -> None:
    finding = _found(zeroed())
    assert finding.id == "PD17.zeroed-gradients" and finding.severity is Severity.NOTE
    assert finding.location is not None and finding.location.line == 40
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(2.8), pytest.approx(4.0))


@pytest.mark.parametrize(
    ("timing", "told"),
    [
        ({"released_ms": 5.0}, False),
        ({"released_ms": 4.7}, True),
        ({"released_ms": 9.0}, False),
        ({"released_ms": 5.0, "part": 0.5}, True),
    ],
)
def test_zeroing_counts_by_what_was_timed(timing: dict[str, float], told: bool) -> None:
    """Of 25 ms. Where memory is faulted in again, letting go is slower, and nothing is said."""
    assert _ids(zeroed(**timing)) == ["PD17.zeroed-gradients"] * told


def test_gradients_that_are_let_go_are_no_finding_whatever_was_timed() -> None:
    assert is_clear(examine(with_(healthy(), ops__parameters=TIMING), CHECK.limits))
    assert is_clear(examine(with_(zeroed(), ops__parameters=Missing("too large")), CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# The model's state


def test_a_state_that_is_copied_and_averaged_in_every_step_is_one_finding() -> None:
    finding = _found(state_copies())
    assert finding.id == "PD17.state-copies"
    assert finding.location is not None
    assert finding.location.line == 37
    assert number(finding, "cost_ms") == pytest.approx(4.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((2.0, 3.8))


def test_a_deep_copy_of_the_model_in_every_step_is_told_with_the_loop_that_averages_it() -> None:
    finding = _found(copied_model())
    assert (finding.id, number(finding, "cost_ms")) == ("PD17.state-copies", pytest.approx(4.0))
    assert "copy.deepcopy" in finding.message
    assert finding.location is not None and finding.location.line == 30
    lines = copied_model().hot_lines
    assert not isinstance(lines, Missing)
    few = tuple(replace(line, runs_per_step=1.0) for line in lines)  # no loop
    assert number(_found(with_(copied_model(), hot_lines=few)), "cost_ms") == pytest.approx(3.0)
    assert "PD17.state-copies" not in _ids(copied_model(0.4))


def test_a_state_that_is_taken_rarely_or_inside_another_part_is_none() -> None:
    assert "PD17.state-copies" not in _ids(state_copies(0.4))
    lines = state_copies().hot_lines
    assert not isinstance(lines, Missing)
    saved = tuple(replace(line, part="checkpoint") if line.part == "other" else line for line in lines)
    assert "PD17.state-copies" not in _ids(with_(state_copies(), hot_lines=saved))


def test_statistics_of_an_averaged_model_that_are_made_again_and_again_are_an_opportunity() -> None:
    finding = _found(refreshed_statistics())
    assert (finding.id, finding.severity) == ("PD17.statistics-updates", Severity.NOTE)
    assert finding.location is not None and finding.location.line == 61
    assert (number(finding, "every"), number(finding, "call_ms")) == (20, pytest.approx(120.0))
    assert finding.savings.part is Part.EPOCH and finding.savings.high_ms == pytest.approx(6.0)
    unseen = with_(refreshed_statistics(), step__irregular_ms=0.0)  # neither in the steady step nor beside it
    saved, whole_ms = _found(unseen).savings, 25.0 + 6.0
    assert saved.part is Part.OTHER and saved.high_ms == pytest.approx(25.0 * 6.0 / whole_ms, rel=0.05)


@pytest.mark.parametrize(("calls", "ms"), [(0.001, 6.0), (0.05, 0.4)], ids=["one at the end", "of little data"])
def test_statistics_that_are_made_once_or_cost_little_are_none_of_its_business(calls: float, ms: float) -> None:
    assert is_clear(examine(refreshed_statistics(calls, ms), CHECK.limits))


def test_a_schedule_in_the_inner_loop_is_found_by_the_calls_too_many() -> None:
    finding = _found(stepped_schedule())
    assert finding.id == "PD17.schedule-steps" and finding.location is not None and finding.location.line == 58
    assert number(finding, "calls") == 8 and number(finding, "cost_ms") == pytest.approx(3.0)
    assert finding.savings.high_ms == pytest.approx(3.0 * 7 / 8) and finding.savings.part is Part.OTHER


@pytest.mark.parametrize(("calls", "ms"), [(1.0, 3.0), (1.1, 3.0), (8.0, 1.2)])
def test_a_schedule_that_is_stepped_once_or_costs_little_is_none(calls: float, ms: float) -> None:
    assert is_clear(examine(stepped_schedule(calls, ms), CHECK.limits))


def test_derivatives_asked_for_one_by_one_cost_their_passes_and_those_through_their_graphs() -> None:
    finding = _found(derived_one_by_one(3.0))
    assert (finding.id, finding.severity) == ("PD17.derivatives-one-by-one", Severity.WARNING)
    assert finding.location is not None and finding.location.line == 31
    assert finding.savings.low_ms == pytest.approx(0.85 * 2 * 3.0)
    assert finding.savings.high_ms == pytest.approx(3 * 3.0)
    assert "backward pass" in finding.reasoning
    plain = _found(derived_one_by_one(3.0, created=False))
    assert (plain.savings.low_ms, plain.savings.high_ms) == (pytest.approx(0.85 * 3.0), pytest.approx(3.0))
    assert "backward pass" not in plain.reasoning


def test_backward_passes_through_the_same_graph_cost_what_they_call_again() -> None:
    finding = _found(went_back_again(3.0))
    assert (finding.id, finding.severity) == ("PD17.passes-one-by-one", Severity.WARNING)
    assert finding.location is not None and finding.location.line == 100
    assert finding.savings.low_ms == pytest.approx(0.85 * 3.0 + 90 * 0.002)
    assert finding.savings.high_ms == pytest.approx(1.15 * 3.0 + 90 * 0.010)
    assert is_clear(examine(went_back_again(0.1), CHECK.limits))


def test_few_derivatives_are_left_as_they_are() -> None:
    assert is_clear(examine(derived_one_by_one(0.5), CHECK.limits))
    assert _ids(with_(derived_one_by_one(), hot_lines=Missing("it was not seen"))) == ["PD17.derivatives-one-by-one"]


def test_matrices_that_each_update_factorizes_are_told_at_their_line_with_what_is_made_of_them() -> None:
    finding = _found(factorized())
    assert (finding.id, finding.severity) == ("PD17.factorized-each-step", Severity.NOTE)
    assert finding.location is not None and (finding.location.line, finding.location.function) == (40, "inverse_root")
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(0.9 * 9.0), pytest.approx(9.0 + 2.0))
    assert {m.value for m in finding.evidence if m.name == "operator"} == {"`linalg_eigh`"}


@pytest.mark.parametrize(
    "run",
    [
        factorized(ms=1.0),
        factorized(name="linalg_qr"),  # a projection of the weights
        factorized(name="mm"),
        factorized(part="forward"),  # the loss's own
        factorized(ops_ms=90.0),  # every tenth update, and one of these was seen
    ],
)
def test_others_need_their_factors_or_have_them_seldom(run: Evidence) -> None:
    assert "PD17.factorized-each-step" not in _ids(run)


def test_a_window_that_was_disturbed_is_believed_where_another_met_the_line_too() -> None:
    run = factorized(ops_ms=90.0)
    site = run.hot_lines[0].site  # type: ignore[index]
    watched = (CodeLine(site, "optimizer", True, 9.0, 0.7),)
    assert "PD17.factorized-each-step" in _ids(with_(run, code_lines=watched))


def _hooked(tensors: float = 120.0, reads: float = 120.0, part: str = "backward") -> Evidence:
    """A line that the backward pass, or a loop, calls for so many of 120 gradients."""
    run = parameter_loop(reads=reads, part=part)
    assert not isinstance(run.hot_lines, Missing)
    line = replace(run.hot_lines[0], loop=None, runs_per_step=tensors)
    return with_(run, hot_lines=(line, *HOT_LINES))


def test_a_hook_that_reads_each_gradient_is_told_by_its_line() -> None:
    finding = only(examine(_hooked(), CHECK.limits))
    assert finding.id == "PD17.parameter-reads" and finding.savings.part is Part.COMPUTE
    assert filled(finding).message.startswith("a hook is called for 120 gradients and reads 120 scalars")
    assert "after the backward pass" in finding.fix.text
    assert "after the backward pass" not in only(examine(parameter_loop(reads=120.0), CHECK.limits)).fix.text


@pytest.mark.parametrize(
    "run", [_hooked(tensors=20.0), _hooked(reads=0.0), _hooked(part="forward")], ids=["few", "unread", "forward"]
)
def test_what_reads_few_gradients_or_none_is_no_such_hook(run: Evidence) -> None:
    assert not ids(examine(run, CHECK.limits))
