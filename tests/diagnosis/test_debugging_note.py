"""PD96: debugging that is on belongs to what the numbers are worth, and is no finding of a check."""

from __future__ import annotations

from dataclasses import replace

from samples import healthy

from perfdoctor.diagnosis.findings import Severity
from perfdoctor.diagnosis.integrity import notes
from perfdoctor.evidence.model import DebuggingAid, Missing, RunEvidence
from perfdoctor.report.wording import fill

ANOMALY = DebuggingAid("anomaly detection of autograd", "torch.autograd.set_detect_anomaly(False)")
DEVELOPMENT = DebuggingAid("Python's development mode", "unset PYTHONDEVMODE")


def _said(*aids: DebuggingAid) -> list[str]:
    evidence = replace(healthy(), debugging=aids)
    found = [note for note in notes(RunEvidence((evidence,)), ()) if note.code == "PD96"]
    assert all(note.severity is Severity.WARNING for note in found)
    return [fill(note.message, note.measurements) for note in found]


def test_what_is_on_is_named_with_what_switches_it_off() -> None:
    (text,) = _said(ANOMALY, DEVELOPMENT)
    assert "anomaly detection of autograd, Python's development mode" in text
    assert "`torch.autograd.set_detect_anomaly(False)`; `unset PYTHONDEVMODE`" in text
    assert "--try debug.off" in text


def test_only_what_a_trial_can_switch_off_is_offered_for_one() -> None:
    (text,) = _said(DEVELOPMENT)
    assert "--try" not in text


def test_nothing_on_and_nothing_known_are_no_note() -> None:
    assert _said() == []
    unknown = replace(healthy(), debugging=Missing("the job ended before its second step"))
    assert [note for note in notes(RunEvidence((unknown,)), ()) if note.code == "PD96"] == []
