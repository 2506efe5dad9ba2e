"""What limits how far a run can be trusted: each note alone, and none for a quiet run."""

from __future__ import annotations

from typing import Any

import pytest
from samples import healthy, with_

from perfdoctor.diagnosis.diagnoses import CheckResult
from perfdoctor.diagnosis.findings import Severity
from perfdoctor.diagnosis.integrity import notes
from perfdoctor.diagnosis.outcomes import Outcome, OutcomeKind
from perfdoctor.evidence.model import Missing, OwnCost, RunEvidence
from perfdoctor.report import wording


def _said(*ours: str, results: tuple[CheckResult, ...] = (), **changes: Any) -> dict[str, str]:
    """Code -> sentence."""
    run = RunEvidence((with_(healthy(), **changes),), ours)
    return {note.code: wording.fill_reason(note.message, note.measurements) for note in notes(run, results)}


def test_a_quiet_run_has_none() -> None:
    assert _said() == {}


@pytest.mark.parametrize(
    ("count", "said"), [(1, "only 1 steady step was seen"), (19, "only 19 steady steps were seen"), (20, None)]
)
def test_few_steps_are_told(count: int, said: str | None) -> None:
    found = _said(step__count=count)
    assert found == {} if said is None else found["PD90"].startswith(said)


@pytest.mark.parametrize(("half", "is_told"), [(0.26, True), (0.24, False)])
def test_a_mean_that_nobody_knows_is_told(half: float, is_told: bool) -> None:
    step = healthy().step
    assert not isinstance(step, Missing)
    ends = {"step__low_ms": (1 - half) * step.step_ms, "step__high_ms": (1 + half) * step.step_ms}
    assert ("known to within 26 % only" in _said(**ends).get("PD98", "")) is is_told


def test_no_step_is_an_error_and_its_reason_is_quoted_as_it_is() -> None:
    (note,) = notes(RunEvidence((with_(healthy(), step=Missing("KeyError: '{x}'")),)), ())
    assert (note.code, note.severity) == ("PD90", Severity.ERROR)
    assert "'{x}'" in wording.fill_reason(note.message, note.measurements)
    assert "{{" not in wording.fill_reason(note.message, note.measurements)


@pytest.mark.parametrize(
    ("changes", "contended"),
    [
        ({"host__others_cpus": 0.31, "host__idle_cpus": 0.1}, True),
        ({"host__others_cpus": 0.29, "host__idle_cpus": 0.1}, False),
        ({"host__others_cpus": 1.0, "host__idle_cpus": 0.6}, False),
        ({"host__job_run_delay_share": 0.11}, True),
        ({"host__job_run_delay_share": Missing("not counted")}, False),
        ({"host": Missing("no monitor")}, False),
    ],
)
def test_a_busy_machine_is_told(changes: dict[str, Any], contended: bool) -> None:
    assert ("PD92" in _said(**changes)) is contended


def test_the_busy_machine_says_how_busy() -> None:
    said = _said(host__others_cpus=1.0, host__idle_cpus=0.1, host__job_run_delay_share=0.25)["PD92"]
    assert said == (
        "the machine was contended: other processes used 1 core, and the job waited for a CPU for 25 % of its "
        "runnable time"
    )


def test_a_job_that_is_its_own_neighbour_is_told_so() -> None:
    said = _said(host__others_cpus=0.0, host__idle_cpus=0.1, host__job_run_delay_share=0.33)["PD92"]
    assert said.startswith("the job's own threads and processes want more CPUs than there are: other processes used 0")


@pytest.mark.parametrize(("us", "told"), [(240.0, False), (260.0, True)])
def test_our_own_cost_is_told_when_it_is_much(us: float, told: bool) -> None:
    """Of a step of 25 ms."""
    assert ("PD93" in _said(own_cost=OwnCost(us, 35.0, 100.0, 0.01, 0.01, 60.0))) is told


def test_a_crashed_check_and_what_the_reader_skipped_are_told() -> None:
    crashed = CheckResult("PD07", "dtype", "data types", Outcome(OutcomeKind.CRASHED, "KeyError"))
    found = _said("a cut line after {", results=(crashed,))
    assert found == {"PD94": "PD07 dtype crashed", "PD95": "a cut line after {"}
