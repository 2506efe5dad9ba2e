"""`perfdoctor baseline`, and `perfdoctor gate` with `--baseline` or `--from`: stored numbers, not a second checkout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median

from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from ..gate import baseline as stored
from ..gate import fingerprint
from ..gate.failure import JobFailedError, job_failed
from ..gate.findings import of_the_job
from ..gate.metrics import metrics
from ..gate.model import GateResult, Verdict
from ..gate.stored import StoredArm
from ..gate.stored import judge as judge_stored
from ..launch.command import Command
from ..observation.session import COUNTING, Request, record
from ..recording.directory import RunDirectory
from ..report import gate_words, wording
from ..storage.copies import origin
from ..traces.source import holds_events, written
from ..trials.judge import judge, judge_recorded
from .progress import say


def launch(command: Command, config: Config, count: int) -> tuple[list[Diagnosis], RunDirectory]:
    """`count` fresh launches, one after the other, and the recording of the first. Raises PerfdoctorError."""
    found: list[Diagnosis] = []
    kept: RunDirectory | None = None
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    for number in range(1, count + 1):
        directory = RunDirectory.create(config.runs, f"baseline-{command.name}")
        request = Request(command, config, False, "file", windows=COUNTING, environment=environment)
        ending = record(request, directory, lambda progress: None)
        diagnosis = judge(directory, config)
        step = diagnosis.evidence.step
        if ending.kind in ("crashed", "killed"):
            raise job_failed("this run", ending.how, directory.job_output)
        if ending.kind == "interrupted":
            raise KeyboardInterrupt
        if isinstance(step, Missing):
            raise JobFailedError(
                f"nothing to compare: {step}",
                slug="no-step",
                advice="perfdoctor check SCRIPT shows what is seen of the job",
                output=directory.job_output,
            )
        found.append(diagnosis)
        say(f"launch {number} of {count}: {step.step_ms:.1f} ms per step")
        if kept is None:
            kept = directory
        else:
            shutil.rmtree(directory.path, ignore_errors=True)
    assert kept is not None
    return found, kept


def write(file: Path, command: Command, config: Config, launches: int, today: date) -> None:
    """Launch the job and write the file."""
    diagnoses, _ = launch(command, config, launches)
    file.write_text(stored.render(_made(diagnoses, command.name, today)))
    say(f"{file} holds {wording.plural(launches, 'launch')}; commit it")


def _made(diagnoses: Sequence[Diagnosis], job: str, written: date) -> stored.Baseline:
    first = diagnoses[0].evidence
    findings = {f.fingerprint: f for d in diagnoses for f in of_the_job(d.ranked)}
    return stored.make(
        written,
        job,
        fingerprint.configuration(first),
        fingerprint.machine(first),
        [metrics(d.evidence) for d in diagnoses],
        list(findings.values()),
    )


def read(file: Path) -> stored.Baseline:
    """Raises PerfdoctorError when it is not there or no baseline."""
    try:
        text = file.read_text()
    except OSError as error:
        raise PerfdoctorError(
            f"cannot read {file}: {error.strerror}",
            slug="baseline-missing",
            advice=f"write it first: perfdoctor baseline write --file {file} SCRIPT",
        ) from error
    return stored.parse(text, str(file))


def show(file: Path) -> str:
    """The file for people."""
    found = read(file)
    lines = [f"{file}: {found.job}, written {found.written}", ""]
    for title, table in (("configuration", found.configuration), ("machine", found.machine)):
        lines += [title, *(f"  {name}: {value}" for name, value in table.items()), ""]
    count = max((len(metric.launches) for metric in found.metrics.values()), default=0)
    lines.append(f"metrics, median of {wording.plural(count, 'launch')}")
    for metric in found.metrics.values():
        low, middle, high = (
            gate_words.number(value, metric.unit)
            for value in (min(metric.launches), median(metric.launches), max(metric.launches))
        )
        spread = f" ({low} to {high})" if low != high else ""
        lines.append(f"  {metric.label}: {middle}{spread}")
    known = [f"  {finding.id} {finding.place}" for finding in found.findings] or ["  none"]
    return "\n".join([*lines, "", "known findings", *known])


def prune(file: Path, run: Path, config: Config) -> str:
    """Take out the findings that a recording does not have any more."""
    found = read(file)
    diagnosis = judge(RunDirectory(run), config)
    if isinstance(diagnosis.evidence.step, Missing):
        raise PerfdoctorError(
            f"{origin(run)} has no steps, so it does not show that a finding is gone",
            slug="no-step",
            advice="name the recording of a run that was judged",
        )
    kept, gone = stored.pruned(found, diagnosis.ranked)
    if gone:
        file.write_text(stored.render(kept))
    return "\n".join(f"removed {known.id} {known.place}" for known in gone) or "nothing to remove"


def gate_against(file: Path, command: Command, config: Config, launches: int, today: date) -> GateResult:
    """The gate against a stored baseline."""
    before = StoredArm(str(file), read(file))
    diagnoses, directory = launch(command, config, launches)
    values = [metrics(diagnosis.evidence) for diagnosis in diagnoses]
    after = StoredArm("this run", _made(diagnoses, command.name, today), diagnoses, str(directory.path), values)
    result = judge_stored(before, after, config, today=today, fail_on=config.fail_on)
    note = {
        Verdict.NOT_COMPARABLE: "if that is meant, write the baseline again",
        Verdict.IMPROVEMENT: "`perfdoctor baseline write` keeps the improvement",
    }.get(result.verdict)
    return replace(result, notes=(*result.notes, note)) if note else result


# ---------------------------------------------------------------------------------------------------------
# Two arms that are stored: `gate --from BEFORE AFTER`


def read_arm(path: Path, config: Config) -> StoredArm:
    """A recording, a trace, a baseline or a report as JSON. Raises PerfdoctorError for anything else."""
    if path.is_dir() or holds_events(path):
        return _recording(path, config)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PerfdoctorError(
            f"cannot read {origin(path)}: {why}",
            slug="from-unreadable",
            advice="name two recordings (directories in .perfdoctor/runs), baselines, or reports as JSON",
        ) from error
    schema = stored.schema_of(text)
    if schema.startswith(stored.REPORT):
        return StoredArm(origin(path), stored.read_report(text, origin(path)))
    if schema.startswith(stored.GATE):
        raise PerfdoctorError(
            f"{origin(path)} is the report of a gate, which compared two arms already",
            slug="from-gate",
            advice="name the recordings that it kept (`before` and `after`, `recording`), or one baseline each",
        )
    return StoredArm(origin(path), stored.parse(text, origin(path)))


def _recording(path: Path, config: Config) -> StoredArm:
    diagnosis = judge_recorded([path], config)
    evidence = diagnosis.evidence
    if isinstance(evidence.step, Missing):
        raise PerfdoctorError(
            f"{origin(path)} has nothing to compare: {evidence.step}",
            slug="no-step",
            advice="name the recording of a run that made steps",
            exit_code=Exit.NOT_MEASURABLE,
        )
    started = evidence.job.started[:10]
    content = _made([diagnosis], path.name, date.fromisoformat(started) if started else written(path))
    return StoredArm(origin(path), content, (diagnosis,))
