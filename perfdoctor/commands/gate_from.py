"""`perfdoctor gate --from BEFORE AFTER`: what is stored already, from whatever kind of file or directory."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from ..config.settings import Config
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from ..gate import baseline as stored
from ..gate import fingerprint
from ..gate.metrics import metrics
from ..gate.stored import StoredArm
from ..recording.directory import RunDirectory
from ..trials.judge import judge


def read_arm(path: Path, config: Config) -> StoredArm:
    """A recording, a baseline or a report as JSON. Raises PerfdoctorError for anything else."""
    if path.is_dir():
        return _recording(path, config)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PerfdoctorError(
            f"cannot read {path}: {why}",
            slug="from-unreadable",
            advice="name two recordings (directories in .perfdoctor/runs), baselines, or reports as JSON",
        ) from error
    schema = stored.schema_of(text)
    if schema.startswith(stored.REPORT):
        return StoredArm(str(path), stored.read_report(text, str(path)))
    if schema.startswith(stored.GATE):
        raise PerfdoctorError(
            f"{path} is the report of a gate, which compared two arms already",
            slug="from-gate",
            advice="name the recordings that it kept (`before` and `after`, `recording`), or one baseline each",
        )
    return StoredArm(str(path), stored.parse(text, str(path)))


def _recording(path: Path, config: Config) -> StoredArm:
    diagnosis = judge(RunDirectory(path), config)
    evidence = diagnosis.evidence
    if isinstance(evidence.step, Missing):
        raise PerfdoctorError(
            f"{path} has nothing to compare: {evidence.step}",
            slug="no-step",
            advice="name the recording of a run that made steps",
            exit_code=Exit.NOT_MEASURABLE,
        )
    content = stored.make(
        date.fromisoformat(evidence.job.started[:10]),
        path.name,
        fingerprint.configuration(evidence),
        fingerprint.machine(evidence),
        [metrics(evidence)],
        diagnosis.ranked,
    )
    return StoredArm(str(path), content, (diagnosis,))
