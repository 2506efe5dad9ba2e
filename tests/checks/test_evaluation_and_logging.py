"""Printing and tracking in the loop, and evaluations."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.evaluation_and_logging import (
    PRINT_LINE,
    READ_LINE,
    as_text,
    evaluating,
    logging_loop,
    metrics_by_sample,
    scored_in_python,
    scoring,
    small_evaluation_batches,
    small_passes,
    written_without_cache,
)
from perfdoctor.checks.evaluation_and_logging import CHECK
from samples import NOT_SEEN, asked, healthy, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import LoggingLine, Missing, Site, TrainerOption
from perfdoctor.report import wording

examined, found = asked(CHECK)


@pytest.mark.parametrize(("ms", "severity"), [(2.0, Severity.NOTE), (6.0, Severity.WARNING)])
def test_what_a_trainer_is_told_to_log_is_an_ill_only_where_it_takes_a_fifth_of_the_step(
    ms: float, severity: Severity
) -> None:
    line = LoggingLine("self.log_dict", Site("model.py", 72, "on_before_optimizer_step"), 1.0, ms)
    finding = found(with_(logging_loop(ms), logging=(line,)))
    assert (finding.id, finding.severity) == ("PD20.logging", severity)
    assert "self.log_dict" in {one.value for one in finding.evidence}


def test_logging_is_found_with_its_line() -> None:
    finding = found(logging_loop())
    assert finding.id == "PD20.logging" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == PRINT_LINE.line
    assert number(finding, "cost_share") == pytest.approx(1 / 3)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(8.0), pytest.approx(9.8))


@pytest.mark.parametrize(("ms", "fires"), [(0.0, False), (1.0, False), (1.1, True)])
def test_logging_counts_from_a_twentieth_of_the_step_on(ms: float, fires: bool) -> None:
    assert ("PD20.logging" in ids(examined(logging_loop(ms)))) is fires


def test_where_no_line_was_seen_logging_is_not_blamed() -> None:
    assert is_clear(examined(with_(logging_loop(), logging=())))


def test_small_batches_save_what_the_forward_pass_takes_longer_than_in_training() -> None:
    finding = found(small_evaluation_batches())
    assert finding.id == "PD20.small-evaluation-batches"
    assert finding.savings.part is Part.EPOCH
    # 400 ms of forward passes would take 200 x 0.25 ms, every 50 steps.
    assert finding.savings.low_ms == pytest.approx((400 - 50) / 50)
    assert finding.savings.high_ms == pytest.approx((350 + 390 * 31 / 32) / 50)  # 10 ms are the iterator's start


def test_without_a_loader_a_batch_of_training_is_what_its_forward_pass_is_given() -> None:
    finding = found(small_evaluation_batches(training_samples=0))
    assert finding.id == "PD20.small-evaluation-batches" and number(finding, "training_samples") == 32


@pytest.mark.parametrize("changes", [{"samples": 17}, {"samples": 0}, {"forward_ms": 60.0}])
def test_batches_are_not_small_where_nothing_shows_that_they_cost(changes: dict[str, float]) -> None:
    assert is_clear(examined(small_evaluation_batches(**changes)))


def test_evaluation_that_takes_longer_than_training_is_an_ill() -> None:
    finding = found(evaluating())
    assert finding.id == "PD20.evaluation-too-often" and finding.severity is Severity.ERROR
    # A twentieth of the time: 20 ms of training for 1.05 ms of evaluation.
    assert number(finding, "wanted_every") == 2850
    assert finding.savings.high_ms == pytest.approx(60 - 20 / 19)
    assert finding.savings.low_ms == pytest.approx(60 / 2)  # half as often


def test_evaluation_that_takes_less_than_training_is_the_users_choice() -> None:
    finding = found(evaluating(600.0, share=0.37))
    assert finding.is_opportunity and finding.savings.general


@pytest.mark.parametrize("changes", [{"share": 0.24}, {"count": 1}])
def test_rare_or_single_evaluations_are_left_alone(changes: dict[str, float]) -> None:
    assert is_clear(examined(evaluating(**changes)))


def test_a_validation_once_an_epoch_at_a_twelfth_of_the_time_is_clear() -> None:
    outcome = examined(evaluating(870.0, every=500.0, share=0.08))
    assert is_clear(outcome) and number(outcome, "evaluation_share") == pytest.approx(0.08)


def test_a_progress_bar_that_is_printed_every_ten_seconds_is_clear() -> None:
    """500 steps of 20 ms, and 2 ms for the bar: none of it is in most steps."""
    bar = LoggingLine("the progress bar", PRINT_LINE, 1 / 500, 2.0 / 500)
    outcome = examined(with_(logging_loop(2.0 / 500), logging=(bar,)))
    assert is_clear(outcome) and number(outcome, "logging_share") < 0.001


def test_a_metric_that_is_read_once_an_evaluation_is_clear() -> None:
    """Its state stays on the device: 40 batches of 32, and 16 ms outside the model for one read and the updates."""
    assert is_clear(examined(metrics_by_sample(200.0, batches=40.0, forward_ms=180.0, wait_ms=2.0, start_ms=2.0)))


def test_without_evaluations_the_answer_says_so() -> None:
    outcome = examined(with_(healthy(), evaluations=NOT_SEEN))
    assert is_clear(outcome) and "not seen to evaluate" in outcome.reason


def test_without_a_step_nothing_can_be_told() -> None:
    assert examined(with_(healthy(), step=NOT_SEEN)).kind is OutcomeKind.CANNOT_TELL


def test_what_is_done_with_each_sample_of_an_evaluation_is_told() -> None:
    finding = found(metrics_by_sample())
    assert finding.id == "PD20.metrics-sample-by-sample" and finding.severity is Severity.WARNING
    assert (number(finding, "around_ms"), number(finding, "each_us")) == (480.0, pytest.approx(600.0))
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(3.84), pytest.approx(7.296))
    assert finding.savings.part is Part.EPOCH
    assert finding.location is not None and finding.location.line == 62  # where the loop begins


@pytest.mark.parametrize(
    "changes",
    [
        {"by_sample": ()},
        {"by_sample": NOT_SEEN},
        {"samples": 4},
        {"every": 500.0},
        {"wait_ms": 250.0, "start_ms": 200.0},
    ],
    ids=["no loop over samples", "not followed", "little batches", "little of the time", "waits"],
)
def test_a_metric_that_costs_little_is_left_alone(changes: dict[str, float]) -> None:
    assert "PD20.metrics-sample-by-sample" not in ids(examined(metrics_by_sample(**changes)))


def test_evaluations_of_most_steps_are_part_of_the_steady_step() -> None:
    """Every third step of 20 ms evaluates for 30 ms, so that training has 10 ms of a step."""
    often = with_(evaluating(30.0, 3.0, share=0.5, regular=True), step__irregular_ms=0.0)
    finding = found(often)
    assert finding.id == "PD20.evaluation-too-often" and finding.savings.part is Part.COMPUTE
    assert number(finding, "training_ms") == pytest.approx(30.0)
    assert finding.savings.high_ms == pytest.approx(10 - 10 / 19)


def test_an_evaluation_in_every_step_is_an_opportunity_with_its_line() -> None:
    finding = found(scoring())
    assert finding.id == "PD20.evaluation-too-often" and finding.is_opportunity
    assert finding.savings.part is Part.COMPUTE and finding.location is not None and finding.location.line == 44
    assert "in every step, which trains for" in finding.message and "no backward pass" in finding.reasoning
    # 12 ms of training for 0.63 ms of evaluation.
    assert finding.savings.high_ms == pytest.approx(8 - 12 / 19)
    assert number(finding, "wanted_every") == 13


@pytest.mark.parametrize(("is_sure", "severity"), [(True, Severity.ERROR), (False, Severity.NOTE)])
def test_it_alarms_where_it_takes_longer_than_training_and_is_sure(is_sure: bool, severity: Severity) -> None:
    finding = found(scoring(12.0, is_sure=is_sure))
    assert finding.severity is severity
    assert ("could not be told" in finding.reasoning) is not is_sure


@pytest.mark.parametrize(("changes", "fires"), [({}, True), ({"held_out": False}, False), ({"regular": False}, False)])
def test_in_the_steady_step_a_tenth_of_the_time_is_enough(changes: dict[str, bool], fires: bool) -> None:
    assert ("PD20.evaluation-too-often" in ids(examined(scoring(2.0, **changes)))) is fires
    assert is_clear(examined(scoring(1.9, **changes)))


def test_a_metric_in_python_is_told_at_the_line_that_reads_with_the_function_that_takes_long() -> None:
    finding = found(scored_in_python())
    assert finding.id == "PD20.metrics-in-python" and finding.severity is Severity.NOTE
    assert finding.location is not None and finding.location.line == READ_LINE.line
    assert {one.name: one.value for one in finding.evidence}["functions"] == "`ngrams` (metrics.py:12)"
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((4.0, 7.6))


@pytest.mark.parametrize(
    "changes",
    [
        {"count_ms": 2.4},
        {"issued_ms": 1.0},
        {"kinds": ()},
        {"kinds": (("to_list", "input_wait"),)},
        {"kinds": (("to_list", "other"), ("from_list", "other"))},
    ],
    ids=["short", "on tensors", "nothing read", "making a batch", "a simulator"],
)
def test_other_python_is_not_taken_for_a_metric(changes: dict[str, Any]) -> None:
    assert is_clear(examined(scored_in_python(**changes)))


@pytest.mark.parametrize("hot", [False, True], ids=["watched", "by their operators"])
def test_tensors_that_are_written_out_are_told_with_all_that_their_lines_take(hot: bool) -> None:
    finding = found(as_text(hot=hot))
    assert (finding.id, finding.severity) == ("PD20.tensors-as-text", Severity.WARNING)
    assert finding.location == Location("model.py", 12, "forward")
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((4.0, 5.0))


@pytest.mark.parametrize("changes", [{"ms": 1.0}, {"part": "input_wait"}])
def test_little_text_and_that_of_a_loader_are_left_alone(changes: dict[str, Any]) -> None:
    assert is_clear(examined(as_text(**changes)))


def test_tensors_that_a_loader_makes_of_lists_are_no_answer_of_pythons() -> None:
    kinds = (("to_list", "forward"), ("from_list", "input_wait"))
    assert found(scored_in_python(kinds=kinds)).id == "PD20.metrics-in-python"


def test_texts_written_without_a_cache_are_told_with_their_line() -> None:
    finding = found(written_without_cache())
    assert finding.id == "PD20.decoding-without-cache" and finding.savings.part is Part.EPOCH
    assert finding.location is not None and finding.location.line == 57
    assert finding.savings.low_ms == pytest.approx(0.4 * 20.0)
    assert finding.savings.high_ms == pytest.approx(0.95 * 20.0)
    within = found(written_without_cache(regular=True))
    assert within.savings.part is Part.COMPUTE
    assert is_clear(examined(written_without_cache(1.0)))


def test_where_a_trainer_evaluates_the_line_of_its_option_is_told() -> None:
    called, option = Site("train.py", 60, "main", "transformers/trainer.py:train"), Site("train.py", 48, "main")
    told = {
        "job__options": (
            TrainerOption("eval_strategy", Site("train.py", 47, "main")),
            TrainerOption("eval_steps", option),
        )
    }
    assert found(with_(evaluating(asked_at=called), **told)).location == Location("train.py", 48, "main")
    assert found(evaluating(asked_at=called)).location == Location("train.py", 60, "main")
    own = Site("train.py", 60, "main")
    assert found(with_(evaluating(asked_at=own), **told)).location == Location("train.py", 60, "main")


def test_passes_on_single_samples_without_a_loader_are_an_opportunity() -> None:
    evidence = small_passes()
    finding = found(evidence)
    assert (finding.id, finding.severity) == ("PD20.small-passes", Severity.NOTE)
    assert finding.location == Location("train.py", 70, "score") and "split(32)" in (finding.fix.code or "")
    assert not isinstance(evidence.step, Missing)
    # Of 240 passes on one sample 7.5 on 32 are left, each as long as training's at most.
    assert finding.savings.low_ms == pytest.approx((240 - 7.5 * evidence.step.parts.forward) / 40)
    assert finding.savings.high_ms == pytest.approx(240 * (1 - 1 / 32) / 40)


def test_a_training_step_of_several_calls_has_as_many_forward_passes() -> None:
    evidence = small_passes(ms=60.0)
    assert is_clear(examined(evidence))
    parts = with_(evidence, step__micro_batches=8.0)
    assert not isinstance(parts.step, Missing)
    assert found(parts).savings.low_ms == pytest.approx((60 - 7.5 * parts.step.parts.forward / 8) / 40)


def test_calls_of_a_models_parts_by_a_method_of_its_own_are_told_as_such() -> None:
    evidence = small_passes(of_parts=True)
    finding = found(evidence)
    assert "240 calls of its parts" in wording.fill(finding.message, finding.evidence)
    # A part takes at most eight times as long for a batch of 32.
    assert finding.savings.low_ms == pytest.approx((240 - 7.5 * 8.0) / 40)


@pytest.mark.parametrize(
    "changes", [{"samples": 9.0}, {"ms": 60.0}, {"every_steps": 400.0}], ids=["not small", "as long in all", "rare"]
)
def test_passes_that_cost_little_more_than_larger_ones_are_none(changes: dict[str, float]) -> None:
    assert is_clear(examined(small_passes(**changes)))
