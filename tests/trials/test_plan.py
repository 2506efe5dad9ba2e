"""Which remedies are tried, in which order, and what is tried together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnosis_samples import found_by
from predicted import finding
from samples import healthy

from perfdoctor.diagnosis.diagnoses import Combined, Diagnosis
from perfdoctor.diagnosis.findings import Alternative, Finding
from perfdoctor.diagnosis.measured import Gain, Range, Trial, Verdict
from perfdoctor.evidence.model import Missing
from perfdoctor.trials.plan import factors, opportunity, plan, predicted_together, together


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(healthy(), found_by(*findings), None)


def names(*findings: Finding) -> list[str]:
    return [wanted.remedy for wanted in plan(diagnosis(*findings))]


def test_the_largest_predicted_saving_comes_first() -> None:
    assert names(finding("a", 1, 2, "gc.freeze"), finding("b", 3, 4, "memory.malloc")) == ["memory.malloc", "gc.freeze"]


def test_what_may_break_the_job_comes_last() -> None:
    assert names(finding("a", 5, 6, "batch.larger=4"), finding("b", 1, 2, "threads=1")) == [
        "threads=1",
        "batch.larger=4",
    ]


def test_launches_come_after_changes_to_the_running_job() -> None:
    wanted = plan(diagnosis(finding("a", 5, 6, "threads.passive", "threads=1")))
    assert [one.remedy for one in wanted] == ["threads=1", "threads.passive"]
    assert [one.launches for one in wanted] == [False, True]


def test_a_remedy_of_two_findings_is_tried_once_and_predicted_by_the_larger() -> None:
    first, second = finding("a", 1, 1, "etl.replay"), finding("b", 4, 5, "etl.replay")
    (wanted,) = plan(diagnosis(first, second))
    step = healthy().step
    assert not isinstance(step, Missing)
    assert set(wanted.findings) == {first.fingerprint, second.fingerprint}
    assert wanted.predicted == factors(4, 5, step.step_ms)


def test_another_way_than_the_fix_is_tried_with_a_prediction_of_its_own() -> None:
    one = finding("a", 4, 5, "gc.freeze")
    one = replace(one, fix=replace(one.fix, alternatives=(Alternative("checkpoint.background", 1.0, 2.0),)))
    step = healthy().step
    assert not isinstance(step, Missing)
    first, second = plan(diagnosis(one))
    assert (first.remedy, first.predicted) == ("gc.freeze", factors(4, 5, step.step_ms))
    assert (second.remedy, second.predicted) == ("checkpoint.background", factors(1, 2, step.step_ms))
    assert second.findings == (one.fingerprint,)


def test_names_of_no_remedy_and_remedies_for_a_gpu_are_left_out_on_a_cpu() -> None:
    assert names(finding("a", 1, 2, "loader-workers", "dtype.tf32", "gc.thresholds")) == ["gc.thresholds"]


def test_a_library_is_planned_where_the_machine_has_it() -> None:
    faults = diagnosis(finding("a", 1, 2, "memory.malloc", "memory.jemalloc"))
    assert [one.remedy for one in plan(faults)] == ["memory.malloc"]
    found = plan(faults, present=lambda libraries: f"lib{libraries[0]}.so")
    assert [(one.remedy, one.launches) for one in found] == [("memory.malloc", False), ("memory.jemalloc", True)]


def test_a_compiled_model_is_an_opportunity_where_the_step_is_the_models() -> None:
    one = opportunity(diagnosis(), ())
    assert one is not None and (one.remedy, one.findings, one.predicted) == ("compile.model", (), None)
    assert opportunity(diagnosis(), (one,)) is None, "once is enough"
    evidence = healthy()
    job = replace(evidence.job, compiled=True)
    off = opportunity(Diagnosis(replace(evidence, job=job), (), None), ())
    assert off is not None and off.remedy == "compile.off", "what compiling gives, a job that compiles can try too"
    step = evidence.step
    assert not isinstance(step, Missing)
    waiting = replace(evidence, step=replace(step, step_ms=10 * step.step_ms))
    assert opportunity(Diagnosis(waiting, (), None), ()) is None
    assert opportunity(Diagnosis(replace(evidence, step=Missing("none")), (), None), ()) is None


@pytest.mark.parametrize(
    ("low", "high", "step", "expected"),
    [
        (5, 10, 20, Range(20 / 15, 2.0)),
        (0, 5, 20, Range(1.0, 20 / 15)),
        (20, 20, 20, Range(1000, 1000)),
        (0, 0, 20, None),
    ],
)
def test_a_saving_as_a_factor(low: float, high: float, step: float, expected: Range | None) -> None:
    found = factors(low, high, step)
    assert found == (expected if expected is None else Range(pytest.approx(expected.low), pytest.approx(expected.high)))


def test_no_step_no_prediction() -> None:
    assert factors(1, 2, 0) is None


# -- together ---------------------------------------------------------------------------------------------


def helped(remedy: str, factor: float, **fields: object) -> Trial:
    return replace(Trial(remedy, Verdict.HELPED, Gain(factor, factor, factor, 8)), **fields)  # type: ignore[arg-type]


def test_everything_that_helped_goes_together() -> None:
    trials = [helped("gc.freeze", 1.1), helped("memory.malloc", 1.7), Trial("threads=1", Verdict.NO_DIFFERENCE)]
    assert together(trials) == "memory.malloc+gc.freeze"


def test_one_alone_is_no_combination() -> None:
    assert together([helped("gc.freeze", 1.1), Trial("memory.malloc", Verdict.HURT)]) == ""


def test_bounds_and_larger_batches_and_launches_stay_out() -> None:
    others = [helped("etl.replay", 3), helped("threads.passive", 2), helped("batch.larger=2", 2, per_sample=True)]
    assert together([*others, helped("gc.freeze", 1.1), helped("memory.malloc", 1.2)]) == "memory.malloc+gc.freeze"


def test_everything_together_is_predicted_only_if_everything_is_in_it() -> None:
    ill = diagnosis(finding("a", 1, 2, "gc.freeze", "gc.thresholds"), finding("b", 3, 4, "memory.malloc"))
    ill = replace(ill, combined=Combined(4, 6, 20))
    assert predicted_together(ill, "memory.malloc+gc.thresholds") == factors(4, 6, 20)
    assert predicted_together(ill, "gc.freeze+gc.thresholds") is None
    assert predicted_together(replace(ill, combined=None), "memory.malloc+gc.freeze") is None


def test_of_two_that_change_the_same_thing_the_better_one_stays() -> None:
    trials = [
        helped("threads=2", 1.1),
        helped("threads=1", 1.3),
        helped("etl.workers=2", 2),
        helped("etl.prefetch=8", 3),
    ]
    assert together(trials) == "etl.prefetch=8+threads=1"
