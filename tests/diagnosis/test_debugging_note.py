"""PD96: debugging that is on belongs to what the numbers are worth, and is no finding of a check."""

from __future__ import annotations

from dataclasses import replace

from samples import healthy

from perfdoctor.diagnosis.findings import Severity
from perfdoctor.diagnosis.integrity import notes
from perfdoctor.evidence.model import DebuggingAid, Missing, RunEvidence
from perfdoctor.report.wording import fill

BLOCKING = DebuggingAid("a wait after every CUDA kernel", "unset CUDA_LAUNCH_BLOCKING")
DEVELOPMENT = DebuggingAid("Python's development mode", "unset PYTHONDEVMODE")


def _said(*aids: DebuggingAid) -> list[str]:
    evidence = replace(healthy(), debugging=aids)
    found = [note for note in notes(RunEvidence((evidence,)), ()) if note.code == "PD96"]
    assert all(note.severity is Severity.WARNING for note in found)
    return [fill(note.message, note.measurements) for note in found]


def test_what_is_on_is_named_with_what_switches_it_off() -> None:
    (text,) = _said(BLOCKING, DEVELOPMENT)
    assert "a wait after every CUDA kernel, Python's development mode" in text
    assert "`unset CUDA_LAUNCH_BLOCKING`; `unset PYTHONDEVMODE`" in text


def test_nothing_on_and_nothing_known_are_no_note() -> None:
    assert _said() == []
    unknown = replace(healthy(), debugging=Missing("the job ended before its second step"))
    assert [note for note in notes(RunEvidence((unknown,)), ()) if note.code == "PD96"] == []
