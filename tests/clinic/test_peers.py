"""What the words of other tools count for."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.clinic import peers
from benchmarks.clinic.case import Program, cases, write


@pytest.fixture
def float64() -> Program:
    return write(next(case for case in cases() if case.name == "tabular_types"), seed=1, severity=1)


@pytest.fixture
def healthy() -> Program:
    return write(next(case for case in cases() if case.name == "patch_codes"), seed=1, severity=1)


def said(kind: str, severity: str, *issues: tuple[str, str]) -> dict[str, Any]:
    """A summary of TraceML's, with issues of one section."""
    found = [{"kind": name, "severity": weight} for name, weight in issues]
    return {"primary_diagnosis": {"kind": kind, "severity": severity}, "system": {"issues": found}, "schema": "1"}


def ids(summary: dict[str, Any], program: Program) -> list[str]:
    return [claim.id for claim in peers.traceml_claims(summary, program)]


def test_a_hint_at_several_causes_counts_as_the_right_one(float64: Program) -> None:
    assert ids(said("COMPUTE_BOUND", "warn"), float64) == list(float64.case.expect)


def test_a_wrong_diagnosis_is_a_claim(float64: Program) -> None:
    assert ids(said("INPUT_BOUND", "crit"), float64) == ["PD03"]


def test_what_it_only_informs_of_counts_where_it_is_right_and_is_no_alarm_elsewhere(
    float64: Program, healthy: Program
) -> None:
    assert ids(said("COMPUTE_BOUND", "info"), float64) == list(float64.case.expect)
    assert ids(said("COMPUTE_BOUND", "info"), healthy) == []
    assert ids(said("INPUT_BOUND", "info"), float64) == []


def test_warnings_of_its_sections_count_and_its_remarks_do_not(healthy: Program) -> None:
    summary = said("INSUFFICIENT_STEP_TIME_DATA", "info", ("HIGH_CPU", "warn"), ("NO_GPU", "info"))
    assert ids(summary, healthy) == ["PD12"]
