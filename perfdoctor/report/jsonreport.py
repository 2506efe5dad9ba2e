"""The report for programs: JSON with a version. The types here are the format, and its JSON Schema is made from them.

Within a version fields are only added. Numbers are plain and in the unit that their name or `unit` says; shares are
fractions of 1; sentences are complete, with their numbers filled in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from ..diagnosis.diagnoses import CheckResult, Combined, Diagnosis, IntegrityNote, Unexplained
from ..diagnosis.findings import Finding, Location, Measurement
from ..diagnosis.measured import Trials
from ..diagnosis.outcomes import OutcomeKind
from ..evidence.model import (
    Activity,
    Communication,
    DeviceTimeline,
    Evaluations,
    Evidence,
    Host,
    Job,
    JobAnatomy,
    JobEnd,
    Line,
    Machine,
    Missing,
    OwnCost,
    ProbeFault,
    Step,
    WholeJob,
)
from ..gate import fingerprint
from ..gate.metrics import metrics
from ..gate.model import Metric
from ..version import VERSION
from . import wording
from .jsonform import Json, plain, schema
from .ranks import NAMED
from .verdict import verdict

# perfdoctor.report/1: the first version (0.1.0)
SCHEMA: Literal["perfdoctor.report/1"] = "perfdoctor.report/1"
HOT_LINES = 10


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the job by what it costs in one part of the step."""

    location: Location
    part: str
    """The part of the step that the line's operators belong to."""
    ms_per_step: float
    ops_per_step: float
    runs_per_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy(Step):
    """The steady step: `step_ms` is the sum of `parts`."""

    device: DeviceTimeline | Missing
    """The same step on the CUDA device, or why that is not known."""


@dataclass(frozen=True, slots=True)
class JobSavings:
    """What a fix would have saved over all steps that were seen, or would save over all that the job takes."""

    low_ms: float
    high_ms: float
    share: float
    """`high_ms` over the time that was observed, or over that of the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFinding(Finding):
    """One cause of lost time, with its cost, place, and fix; its texts are complete."""

    job_savings: JobSavings | Missing
    """What it comes to in the job, as far as that was observed."""
    whole_job_savings: JobSavings | Missing
    """What it comes to in the whole job, as `job.whole` extrapolates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed(ReportedFinding):
    """A finding that the configuration silences."""

    suppressed_because: str
    """The reason that the configuration gives."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A check that was asked."""

    code: str
    name: str
    title: str
    outcome: OutcomeKind
    reason: str
    """Why it ended so; empty when the findings say it."""
    measurements: tuple[Measurement, ...]
    """The numbers that clear it, or that it looked at."""
    findings: tuple[ReportedFinding, ...]
    suppressed: tuple[Suppressed, ...]
    """Findings that the configuration silences."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What ran, and on what."""

    rank: int
    """The rank that this report is about: the one that the others wait for, or the slowest."""
    machine: Machine
    job: Job


@dataclass(frozen=True, slots=True)
class OwnWork:
    """How long the ranks work by themselves per step, milliseconds: so many of them at most that long."""

    least: float
    p1: float
    p25: float
    median: float
    p75: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class RankWork:
    """One rank, in the steps that are steady on all."""

    rank: int
    own_ms: float
    """Its own work per step."""
    waits_ms: float
    """Per step, for other ranks and for what is sent between them."""
    late_share: float
    """Of the steps: in those it came last."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks beside each other: their distribution, and those that the others wait for; never all of them."""

    compared: int
    steps: int
    """That were steady on all of these."""
    own_ms: OwnWork
    longest: tuple[RankWork, ...]
    """The three with most work of their own, the one with most first."""
    left_out: tuple[int, ...]
    """Ranks with fewer than half of the steady steps, eight of them at most."""
    left_out_count: int
    judged: tuple[int, ...]
    """Of a large job those that the checks looked at, by all that was recorded; empty where these are all."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What `perfdoctor gate --from` compares of this launch."""

    configuration: Mapping[str, str]
    """How the job was set up: launches with other values do not compare."""
    machine: Mapping[str, str]
    """What it ran on: times compare only where this is the same."""
    metrics: Mapping[str, Metric]
    """By name, as `[assert]` knows them."""


@dataclass(frozen=True, slots=True)
class Integrity:
    """How far to trust this run."""

    notes: tuple[IntegrityNote, ...]
    """What limits how far the run can be trusted."""
    job_end: JobEnd
    probe_faults: tuple[ProbeFault, ...]
    """Hooks that raised and were switched off."""
    contention: Host | Missing


@dataclass(frozen=True, slots=True)
class Report:
    """What `perfdoctor check --output json:FILE` writes. Within version 1 properties are only added, so a reader must
    ignore those that it does not know. A quantity that the run did not see is an object with `missing` and `remedy`.
    Shares are fractions of 1."""

    schema: Literal["perfdoctor.report/1"]
    perfdoctor: str
    """The version of perfdoctor that wrote the report."""
    verdict: str
    """Where the steady step goes and what it could be, in one sentence."""
    anatomy: Anatomy | Missing
    job: JobAnatomy | Missing
    """Where the time of the whole job goes, as far as it was observed; `whole` is extrapolated."""
    activity: Activity | Missing
    """What host and device did side by side; only of a profiler's trace."""
    evaluations: Evaluations | Missing
    """What evaluations between two steps of training take."""
    hot_lines: tuple[HotLine, ...] | Missing
    """Lines of the job by what they cost in each part of the step, the most expensive first; ten at most."""
    checks: tuple[CheckReport, ...]
    """Every check that was asked, in the order of their codes."""
    ranked: tuple[str, ...]
    """Fingerprints of the findings, ills before opportunities, the largest predicted saving first among either."""
    opportunities: tuple[str, ...]
    """Which of them are opportunities: nothing is wrong, or the fix may be worth little."""
    unexplained: Unexplained | None
    """None where the findings explain the step, or there is no step."""
    combined: Combined | None
    """All fixes of ills together, never the sum of their savings; None without ills or without a step."""
    trials: Trials | None
    """What trials of remedies measured (`perfdoctor check --trial`); None when none was asked for."""
    environment: Environment
    ranks: Ranks | Missing
    """Who waits for whom, where the job has several ranks and they were seen to wait."""
    launch: Launch
    overhead: OwnCost | Missing
    """What perfdoctor itself cost in this run."""
    integrity: Integrity


def render_json(diagnosis: Diagnosis) -> str:
    """The report as a JSON document, ending in a newline; the same diagnosis gives the same bytes."""
    return json.dumps(document(diagnosis), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def load_schema() -> dict[str, Json]:
    """The JSON Schema (2020-12) that every report of this version meets."""
    head: dict[str, Json] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "perfdoctor report, version 1",
    }
    return {**head, **schema(Report)}


def document(diagnosis: Diagnosis) -> dict[str, Json]:
    """The report as plain dictionaries and lists."""
    return cast("dict[str, Json]", plain(_report(diagnosis)))


def _report(diagnosis: Diagnosis) -> Report:
    evidence, step = diagnosis.evidence, diagnosis.evidence.step
    # What has no order of its own is sorted.
    job = replace(evidence.job, frameworks=tuple(sorted(evidence.job.frameworks)))
    return Report(
        schema=SCHEMA,
        perfdoctor=VERSION,
        verdict=verdict(diagnosis),
        anatomy=step if isinstance(step, Missing) else Anatomy(**_fields(step), device=evidence.device),
        job=evidence.anatomy,
        activity=evidence.activity,
        evaluations=evidence.evaluations,
        hot_lines=_hot_lines(evidence.hot_lines),
        checks=tuple(_check(result, evidence.anatomy) for result in diagnosis.checks),
        ranked=tuple(finding.fingerprint for finding in diagnosis.ranked),
        opportunities=tuple(finding.fingerprint for finding in diagnosis.opportunities),
        unexplained=diagnosis.unexplained,
        combined=diagnosis.combined,
        trials=diagnosis.trials,
        environment=Environment(evidence.rank, evidence.machine, job),
        ranks=_ranks(evidence.communication),
        launch=_launch(evidence),
        overhead=evidence.own_cost,
        integrity=Integrity(
            tuple(_note(note) for note in diagnosis.integrity), evidence.job.end, evidence.probe_faults, evidence.host
        ),
    )


def _fields(value: Step | Finding) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _hot_lines(lines: tuple[Line, ...] | Missing) -> tuple[HotLine, ...] | Missing:
    if isinstance(lines, Missing):
        return lines
    return tuple(
        HotLine(
            Location(line.site.file, line.site.line, line.site.function),
            line.part,
            line.ms_per_step,
            line.ops_per_step,
            line.runs_per_step,
        )
        for line in lines[:HOT_LINES]
    )


def _ranks(together: Communication | Missing) -> Ranks | Missing:
    if isinstance(together, Missing):
        return together
    return Ranks(
        compared=len(together.ranks),
        steps=together.steps,
        own_ms=OwnWork(*map(together.own_ms, (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0))),
        longest=tuple(
            RankWork(times.rank, times.own_ms, times.parts.communication, times.late_share)
            for times in together.longest
        ),
        left_out=together.left_out[:NAMED],
        left_out_count=len(together.left_out),
        judged=together.judged,
    )


def _check(result: CheckResult, job: JobAnatomy | Missing) -> CheckReport:
    outcome = result.outcome
    return CheckReport(
        result.code,
        result.name,
        result.title,
        outcome.kind,
        wording.fill_reason(outcome.reason, outcome.measurements),
        _labelled(outcome.measurements),
        tuple(_finding(finding, job) for finding in outcome.findings),
        tuple(Suppressed(**_fields(_finding(s.finding, job)), suppressed_because=s.reason) for s in result.suppressed),
    )


def _finding(finding: Finding, job: JobAnatomy | Missing) -> ReportedFinding:
    worded = replace(wording.filled(finding), evidence=_labelled(finding.evidence))
    whole = job if isinstance(job, Missing) else job.whole
    return ReportedFinding(
        **_fields(worded), job_savings=_job_savings(finding, job), whole_job_savings=_job_savings(finding, whole)
    )


def _job_savings(finding: Finding, job: JobAnatomy | WholeJob | Missing) -> JobSavings | Missing:
    if isinstance(job, Missing):
        return job
    low_ms, high_ms = finding.savings.of_job(job)
    return JobSavings(low_ms, high_ms, high_ms / job.wall_ms if job.wall_ms > 0 else 0.0)


def _labelled(measurements: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    return tuple(replace(m, label=wording.label(m)) for m in measurements)


def _note(note: IntegrityNote) -> IntegrityNote:
    message = wording.fill_reason(note.message, note.measurements)
    return replace(note, message=message, measurements=_labelled(note.measurements))


def _launch(evidence: Evidence) -> Launch:
    """Counts of bytes have more digits than a measurement, so whole numbers are written in full."""
    found = {
        name: replace(metric, label=metric.title, value=_whole(metric.value))
        for name, metric in metrics(evidence).items()
    }
    return Launch(fingerprint.configuration(evidence), fingerprint.machine(evidence), found)


def _whole(value: float | Missing) -> float | Missing:
    return int(value) if not isinstance(value, Missing) and float(value).is_integer() else value
