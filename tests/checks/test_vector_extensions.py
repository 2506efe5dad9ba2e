from __future__ import annotations

import pytest
from ill_runs.vector_extensions import limited, masked
from ills import ILL
from perfdoctor.checks.vector_extensions import CHECK
from samples import asked, healthy, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Missing, Op, Site, TrainerOption

_examined, _found = asked(CHECK)


def test_what_the_cpu_has_is_information() -> None:
    outcome = _examined(with_(healthy(), machine__cpu__flags=(), backend__capability="DEFAULT"))
    assert is_clear(outcome)


def test_a_gpu_job_is_not_asked() -> None:
    assert _examined(on_gpu()).kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("part", ["step", "backend"])
def test_without_steps_or_settings_nothing_is_claimed(part: str) -> None:
    assert _examined(with_(healthy(), **{part: Missing("it was not seen")})).kind is OutcomeKind.CANNOT_TELL


def test_a_cap_costs_what_was_timed() -> None:
    finding = _found(limited(slower=4.0, took=12.0))
    assert number(finding, "cost_ms") == pytest.approx(9.0)
    assert finding.confidence is Confidence.HIGH
    assert finding.fix.code == "unset ATEN_CPU_CAPABILITY"
    # 10 ms of other operators may gain half of the 75 per cent.
    assert finding.savings.high_ms == pytest.approx(9.0 + 0.5 * 10.0 * 0.75)
    assert finding.savings.low_ms == pytest.approx(0.8 * 9.0)


def test_a_variable_that_the_job_sets_itself_is_told_at_its_line() -> None:
    here = Site("train.py", 12, "reproducible")
    finding = _found(limited(job__options=(TrainerOption("ATEN_CPU_CAPABILITY", here),)))
    assert finding.location is not None and finding.location.line == 12
    assert "Leave out" in finding.fix.text and not finding.fix.code and not finding.fix.remedies


@pytest.mark.parametrize(("slower", "found"), [(1.0, False), (0.9, False), (1.10, False), (1.2, True)])
def test_a_cap_without_effect_is_clear_with_its_timing(slower: float, found: bool) -> None:
    outcome = _examined(limited(slower))
    assert (outcome.kind is OutcomeKind.FOUND) is found
    assert found or number(outcome, "cost_ms") >= 0


@pytest.mark.parametrize(
    "changes",
    [
        {"backend__vector_extension_timings": Missing("the interpreter failed")},
        {"ops": Missing("the window was not reached")},
    ],
)
def test_a_cap_without_a_timing_is_an_open_question(changes: dict[str, object]) -> None:
    outcome = _examined(with_(limited(), **changes))
    assert outcome.kind is OutcomeKind.CANNOT_TELL


def test_bits_that_must_not_change_are_a_risk() -> None:
    timings = with_(limited().backend.vector_extension_timings, variables=(("MKL_CBWR", "COMPATIBLE"),))  # type: ignore[union-attr]
    evidence = limited(backend__variables=(("MKL_CBWR", "COMPATIBLE"),), backend__vector_extension_timings=timings)
    assert "same bits" in _found(evidence).fix.risk


def test_scalar_kernels_on_a_cpu_with_more_are_not_called_healthy() -> None:
    outcome = _examined(with_(healthy(), backend__capability="DEFAULT"))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "this build" in outcome.reason


def test_a_hypervisor_that_hides_instructions_is_a_note() -> None:
    finding = _found(ILL["PD11.masked-by-hypervisor"])
    assert finding.severity is Severity.NOTE
    assert finding.confidence is Confidence.LOW


@pytest.mark.parametrize(
    "changes",
    [
        {"machine__cpu__hypervisor": False},
        {"machine__cpu__model": 1},  # a model that never had it
        {"machine__cpu__flags": ("avx", "avx2", "avx512f")},
        {"machine__cpu__flags": ()},  # an older recording
        {"ops__ops": (Op("add", "float32", "[512]", 8.0, 20.0, 20.0, 0.0),)},  # no arithmetic to speak of
    ],
)
def test_no_note_without_all_of_it(changes: dict[str, object]) -> None:
    assert is_clear(_examined(with_(masked(), **changes)))


def test_hidden_bfloat16_instructions_matter_to_bfloat16_work() -> None:
    work = (Op("mm", "bfloat16", "[512, 512] [512, 512]", 8.0, 20.0, 20.0, 1e9),)
    evidence = masked(
        machine__cpu__flags=("avx2", "avx512f"), ops__ops=work, ops__self_ms_by_dtype=(("bfloat16", 20.0),)
    )
    finding = _found(evidence)
    assert "avx512_bf16" in [m.value for m in finding.evidence]
    assert finding.savings.low_ms > 0
