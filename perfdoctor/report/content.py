"""A diagnosis prepared for the renderers: every template filled, every number worded, every string clean.

The console and the markdown report draw this; neither looks into a diagnosis for words of its own.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass, replace

from ..diagnosis.diagnoses import CheckResult, Diagnosis, IntegrityNote
from ..diagnosis.findings import Finding, Location, Measurement, Savings, Severity
from ..diagnosis.outcomes import Outcome, OutcomeKind
from ..evidence.model import Evidence, JobAnatomy, Missing, Step
from . import wording
from .anatomy import SliceText, dissect
from .device import device_column, device_sentence
from .job import job_anatomy_text, job_heading, whole_job_sentence, whole_time
from .ranks import ranks_sentence
from .source import source_line
from .trials import TrialsText, accuracy, best_measured, trials_text, tried
from .trust import Row, alarm_rows, environment_rows, trust_brief, trust_rows
from .verdict import combined, verdict, whereabouts

MARKS = {
    OutcomeKind.CLEAR: "✓",
    OutcomeKind.NOT_APPLICABLE: "-",
    OutcomeKind.CANNOT_TELL: "?",
    OutcomeKind.CRASHED: "☠",
}
SEVERITY_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "i"}


@dataclass(frozen=True, slots=True)
class FindingText:
    """One finding in words."""

    number: int
    """Its place in the ranking, from 1."""
    finding: Finding
    mark: str
    message: str
    where: str
    """`train.py:41 in main`; "" without a place."""
    line: str
    """That line of the file as it was when the job ran; "" where it cannot be had."""
    ranks: str
    reasoning: str
    evidence: tuple[tuple[str, str], ...]
    """Label and value."""
    cost: str
    saves: str
    gain: str
    """The same without the cost."""
    of_job: str
    """What that is of the whole job's time, or of the observed part; "" where nothing is saved or was observed."""
    method: str
    fix: str
    code: str
    risk: str
    tried: tuple[str, ...]
    """What became of the trials of its remedies, a sentence each."""
    measured: str
    """What the best of them measured; "" where none did."""

    @property
    def kind(self) -> str:
        """`error`, `warning` or `opportunity`."""
        return "opportunity" if self.finding.is_opportunity else self.finding.severity.value

    @property
    def place(self) -> str:
        """`train.py:41`."""
        return place(self.finding.location, function=False)


@dataclass(frozen=True, slots=True)
class CheckText:
    """One check in words."""

    result: CheckResult
    mark: str
    outcome: str
    text: str
    """What was found, the numbers that clear it, or why there is no answer."""
    measurements: tuple[tuple[str, str], ...]
    """Label and value of each measurement."""


@dataclass(frozen=True, slots=True)
class Section:
    """Findings of one kind."""

    heading: str
    findings: tuple[FindingText, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that a report says, in the order in which it says it."""

    verdict: str
    step: str
    """The length of the steady step; "" without one."""
    anatomy: tuple[SliceText, ...]
    """Empty without a step."""
    job: str
    """How long the whole job would take, or how much of it was observed; "" where nothing was."""
    job_anatomy: tuple[SliceText, ...]
    """Where that time goes; empty where nothing was observed."""
    whole_job: str
    """What the whole job's time is made of and what is not in it; why it is not told, where it could be; else ""."""
    device: str
    """Whether the host or the CUDA device bounds the step; "" in a job without CUDA."""
    whereabouts: str
    ranks: str
    """How the work of the ranks is distributed; "" of few."""
    """Where the time goes that no finding explains; "" when the findings explain most of it."""
    sections: tuple[Section, ...]
    """Ills, then opportunities; those that there are."""
    trials: TrialsText | None
    """None when no remedy was tried."""
    overlap: str
    """That the estimates must not be added, and what they come to; "" with fewer than two findings."""
    accuracy: str
    """How far predictions were off on this machine before; "" where none was tried, and in a report of trials, which
    says it beside them."""
    traced: bool
    """It is about a profiler's trace, not about a run."""
    checks: tuple[CheckText, ...]
    suppressed: tuple[tuple[FindingText, str], ...]
    """Findings that the configuration silences, and the reason that it gives."""
    trust: tuple[Row, ...]
    alarms: tuple[Row, ...]
    """Of these, what went wrong in the job or in its observation."""
    trust_brief: str
    """All of them in a sentence, without the alarms; "" without a step."""
    notes: tuple[tuple[str, IntegrityNote], ...]
    """What limits trust, each with its mark; their messages are in words."""
    environment: tuple[Row, ...]
    summary: str


def prepare(diagnosis: Diagnosis) -> Content:
    """The diagnosis in words."""
    step, job = diagnosis.evidence.step, diagnosis.evidence.anatomy
    return Content(
        verdict=verdict(diagnosis),
        step="" if isinstance(step, Missing) else wording.duration(step.step_ms),
        anatomy=() if isinstance(step, Missing) else anatomy_text(diagnosis.evidence, step),
        job="" if isinstance(job, Missing) else job_heading(job),
        job_anatomy=() if isinstance(job, Missing) else job_anatomy_text(job),
        whole_job="" if isinstance(job, Missing) else whole_job_sentence(job),
        device="" if isinstance(step, Missing) else device_sentence(diagnosis.evidence),
        whereabouts=whereabouts(diagnosis),
        ranks=ranks_sentence(diagnosis.evidence.communication),
        sections=_sections(diagnosis),
        trials=trials_text(diagnosis),
        overlap=_overlap(diagnosis),
        accuracy=accuracy(diagnosis.past) if diagnosis.ranked and diagnosis.trials is None else "",
        traced=diagnosis.evidence.job.traced,
        checks=tuple(_check_text(result) for result in diagnosis.checks),
        suppressed=tuple(
            (finding_text(0, s.finding, diagnosis), wording.clean(s.reason))
            for result in diagnosis.checks
            for s in result.suppressed
        ),
        trust=trust_rows(diagnosis.evidence),
        alarms=alarm_rows(diagnosis.evidence),
        trust_brief=trust_brief(diagnosis.evidence),
        notes=tuple(
            (SEVERITY_MARKS[note.severity], replace(note, message=wording.noted(note))) for note in diagnosis.integrity
        ),
        environment=environment_rows(diagnosis.evidence),
        summary=summary(diagnosis),
    )


def anatomy_text(evidence: Evidence, step: Step) -> tuple[SliceText, ...]:
    """The parts of the step in words."""
    on_device = device_column(evidence, step)
    return tuple(
        SliceText(
            piece,
            wording.aligned(piece.ms, step.parts.total),
            wording.share(piece.share),
            on_device.get(piece.part, ""),
        )
        for piece in dissect(step.parts)
    )


def _of_job(saved: Savings, job: JobAnatomy | Missing) -> str:
    """`3.1 to 4.0 s of the 42 s of the job that were observed`, at the steps that were seen; or of the whole job."""
    if isinstance(job, Missing) or saved.high_ms <= 0 or job.wall_ms <= 0:
        return ""
    if isinstance(job.whole, Missing):
        times = wording.span(*saved.of_job(job))
        return f"{times} of the {wording.duration(job.wall_ms)} of the job that were observed"
    return f"{wording.span(*saved.of_job(job.whole))} of the whole job's time of {whole_time(job.whole)}"


def place(location: Location | None, *, function: bool = True) -> str:
    """The place as `train.py:41 in main`, or without the function; "" without a place."""
    if location is None:
        return ""
    inside = f" in {location.function}" if function and location.function else ""
    return wording.clean(f"{location.file}:{location.line}{inside}")


def finding_text(number: int, finding: Finding, diagnosis: Diagnosis) -> FindingText:
    """One finding in words. Message, reasoning, method and all of the fix are templates over the evidence."""
    worded, step = wording.filled(finding), diagnosis.evidence.step
    step_ms = None if isinstance(step, Missing) else finding.savings.of(step)
    return FindingText(
        number=number,
        finding=finding,
        mark=SEVERITY_MARKS[finding.severity],
        message=wording.sentence(worded.message),
        where=place(finding.location),
        line=source_line(finding.location, diagnosis.evidence.job),
        ranks=worded.rank_note,
        reasoning=wording.sentence(worded.reasoning),
        evidence=_pairs(finding.evidence),
        cost=wording.cost(finding.savings),
        saves=wording.saving(finding.savings, step_ms),
        gain=wording.gain(finding.savings, step_ms),
        of_job=_of_job(finding.savings, diagnosis.evidence.anatomy),
        method=_basis(worded.savings.method),
        fix=wording.sentence(worded.fix.text),
        code=textwrap.dedent(worded.fix.code).strip("\n"),
        risk=wording.sentence(worded.fix.risk),
        tried=tried(diagnosis, finding),
        measured=best_measured(diagnosis, finding),
    )


def summary(diagnosis: Diagnosis) -> str:
    """The count of it all: "8 of 13 checks clear, 2 findings (1 error, 1 warning), 3 not applicable"."""
    kinds = Counter(result.outcome.kind for result in diagnosis.checks)
    severities = Counter(finding.severity for finding in diagnosis.ills)
    counted = [wording.plural(severities[s], s.value) for s in Severity if severities[s]]
    findings = wording.plural(len(diagnosis.ills), "finding")
    parts = [
        f"{kinds[OutcomeKind.CLEAR]} of {wording.plural(len(diagnosis.checks), 'check')} clear",
        f"{findings} ({', '.join(counted)})" if counted else "no findings",
    ]
    if diagnosis.opportunities:
        parts.append(wording.plural(len(diagnosis.opportunities), "opportunity", "opportunities"))
    silenced = sum(len(result.suppressed) for result in diagnosis.checks)
    if silenced:
        parts.append(f"{silenced} suppressed")
    for kind in (OutcomeKind.NOT_APPLICABLE, OutcomeKind.CANNOT_TELL, OutcomeKind.CRASHED):
        if kinds[kind]:
            parts.append(f"{kinds[kind]} {_words(kind)}")
    return ", ".join(parts)


def _basis(method: str) -> str:
    return f"Basis: {method.strip().rstrip('.')}." if method.strip() else ""


def _sections(diagnosis: Diagnosis) -> tuple[Section, ...]:
    texts = [finding_text(number, finding, diagnosis) for number, finding in enumerate(diagnosis.ranked, 1)]
    kinds = {
        "What to fix, largest saving first": [text for text in texts if not text.finding.is_opportunity],
        "Opportunities: nothing is wrong, but this may be faster here": [
            text for text in texts if text.finding.is_opportunity
        ],
    }
    return tuple(Section(heading, tuple(some)) for heading, some in kinds.items() if some)


def _overlap(diagnosis: Diagnosis) -> str:
    if len(diagnosis.ills) < 2:
        return ""
    text = "The estimates overlap, do not add them"
    after = combined(diagnosis)
    if not after or diagnosis.combined is None:
        return f"{text}."
    now = wording.duration(diagnosis.combined.step_ms)
    number = len(diagnosis.ills)
    fixes = "both fixes" if number == 2 else f"all {number} fixes"
    return f"{text}: {fixes} together would bring the step from {now} to {after}."


def _check_text(result: CheckResult) -> CheckText:
    outcome = result.outcome
    return CheckText(
        result=result,
        mark=_mark(outcome),
        outcome=_words(outcome.kind),
        text=_check_sentence(result),
        measurements=_pairs(outcome.measurements),
    )


def _check_sentence(result: CheckResult) -> str:
    outcome = result.outcome
    parts = []
    if outcome.findings:
        parts = [
            f"{finding.id.partition('.')[2] or finding.id} ({wording.cost(finding.savings)})"
            for finding in outcome.findings
        ]
    elif outcome.reason:
        parts = [wording.clean(wording.fill_reason(outcome.reason, outcome.measurements)).rstrip(".")]
        if outcome.measurements and not wording.placeholders(outcome.reason):
            parts[0] += f" ({', '.join(f'{name} {value}' for name, value in _pairs(outcome.measurements))})"
    if result.suppressed:
        parts.append(f"{wording.plural(len(result.suppressed), 'finding')} suppressed")
    return ", ".join(parts)


def _words(kind: OutcomeKind) -> str:
    return kind.value.replace("-", " ")


def _mark(outcome: Outcome) -> str:
    if outcome.findings:
        return SEVERITY_MARKS[max((f.severity for f in outcome.findings), key=lambda s: s.rank)]
    return MARKS.get(outcome.kind, "!")


def _pairs(measurements: tuple[Measurement, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((wording.clean(wording.label(m)), wording.clean(wording.quantity(m))) for m in measurements)
