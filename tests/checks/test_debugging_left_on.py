"""Anomaly detection that was left on."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import SWITCH_LINE, anomaly_detection
from perfdoctor.checks.debugging_left_on import CHECK, examine
from samples import healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Severity
from perfdoctor.evidence.model import DebuggingAid, Evidence


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
