"""Recordings of real runs stay readable, and are judged as they were."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Missing
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.trials.judge import judge

KEPT = Path(__file__).parent.parent / "recordings"


def test_the_demo() -> None:
    """sample_configs/demo_train.py on two cores."""
    diagnosis = judge(RunDirectory(KEPT / "demo"), Config())
    step = diagnosis.evidence.step
    assert not isinstance(step, Missing)
    assert step.count >= 20
    found = {finding.id: finding for finding in diagnosis.ranked}
    assert {"PD03.transform", "PD04.explicit-collect", "PD07.float64"} <= set(found)
    location = found["PD04.explicit-collect"].location
    assert location is not None
    assert (location.file, location.line, location.function) == ("train.py", 80, "train")
    assert [check.code for check in diagnosis.checks if check.outcome.kind is OutcomeKind.CRASHED] == []
