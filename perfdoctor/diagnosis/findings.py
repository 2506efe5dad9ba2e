"""What a check says: its outcome, its findings, and the numbers behind both.

Numbers travel as typed measurements, never inside text: a message is a template whose `{placeholders}` name
measurements, and `report/wording.py` alone turns them into words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, Literal, TypeVar

from ..evidence.model import Evidence, JobAnatomy, Missing, Site, Step, WholeJob
from .measured import NO_PAST, Past, Trials

Unit = Literal["ms", "us", "s", "share", "count", "bytes", "bytes/s", "ratio", "flops", "text"]
"""`share` is a fraction of 1; `ratio` a factor (2.0 is "2.0x"); `text` an identifier, printed as it is."""


class Severity(str, Enum):
    """How much the finding costs, by measurement; the order is that of `rank`.

    A note is an opportunity: nothing in the job is wrong, or its fix may be worth little, but it was timed or predicted
    to be faster otherwise. It raises no alarm, whatever `--fail-on` says.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        return {"note": 0, "warning": 1, "error": 2}[self.value]

    def fails(self, fail_on: str) -> bool:
        """Whether a finding of it fails where `--fail-on` is `error`, `warning` or `never`."""
        return fail_on != "never" and self.rank >= Severity(fail_on).rank


class Confidence(str, Enum):
    """How sure the cause is, given what this run could see."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Part(str, Enum):
    """The part of the step that a finding's cost is billed to, so that no millisecond is billed twice."""

    INPUT_WAIT = "input_wait"
    GC = "gc"
    COMPUTE = "compute"
    """Forward, backward and optimizer together."""
    OTHER = "other"
    """Outside forward, backward and optimizer; drawn from the same pool as `COMPUTE`."""
    COMMUNICATION = "communication"
    """Waiting in collectives, of the rank that waits least: sending."""
    EPOCH = "epoch"
    """Not in the steady step at all: what an epoch's start or a validation run adds, spread over the steps."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number (or identifier) with its name and unit."""

    name: str
    value: float | int | str
    unit: Unit
    label: str = ""
    """What to call it in a report; the name with spaces when empty."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to save some of the time that a finding is about."""

    remedy: str
    low_ms: float
    high_ms: float
    """What it is predicted to save, per steady step."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do about it."""

    text: str
    code: str = ""
    """Ready to paste: Python, or a shell line."""
    language: Literal["python", "bash"] = "python"
    risk: str = ""
    """What may go wrong, in one sentence; empty when nothing may."""
    remedies: tuple[str, ...] = ()
    """Names of remedies a trial could apply to prove it."""
    alternatives: tuple[Alternative, ...] = ()
    """Other ways to save some of the same time, that a trial could try: what they measure is told beside the finding,
    and proves nothing about the fix."""


def _whole_ms(step: Step, part: Part) -> float:
    return step.step_ms + (step.irregular_ms if part is Part.EPOCH else 0.0)


@dataclass(frozen=True, slots=True)
class Savings:
    """What the fix is worth, per steady step."""

    ceiling_ms: float
    """The time that would vanish if the cost vanished whole."""
    low_ms: float
    high_ms: float
    """The range the fix is predicted to save; `0 <= low <= high <= ceiling`."""
    share: float
    """`ceiling_ms` over the step that it is taken off (`of`)."""
    method: str
    """How it was predicted, in one sentence."""
    part: Part = Part.COMPUTE
    lanes: int = 0
    """0: the time is gone. Otherwise it runs beside the rest of the step in this many processes, and what is saved
    depends on how much rest the other fixes leave."""
    general: bool = False
    """The fix helps against whatever the time goes into (a larger batch), so a finding that names what it goes into is
    billed first."""
    first: bool = False
    """Billed before all others: it says why the time is larger than it was, so whoever finds that time large, wherever
    it lies, finds this."""
    predicted_ms: tuple[float, float] | None = None
    """The range before it was widened by how far earlier predictions missed; None where it was not."""
    ceiling_only: bool = False
    """Nothing but the ceiling is known, as from a trace: the range begins at nothing, and alarms go by a part of the
    ceiling."""
    counted: bool = False
    """They follow from numbers of ranks or samples, and no prediction of such has missed."""
    claimed: float = 0.0
    """Part of the time that other findings claim as well: it was taken off the numbers above, so that no millisecond is
    billed twice."""

    def of(self, step: Step) -> float:
        """The step that they are taken off, ms; with what irregular ones add to it, where a part of that is saved."""
        return _whole_ms(step, self.part)

    def of_job(self, job: JobAnatomy | WholeJob) -> tuple[float, float]:
        """The range over all steps that were seen, or of the whole job as extrapolated, ms: no more than that took."""
        return min(job.wall_ms, self.low_ms * job.steps), min(job.wall_ms, self.high_ms * job.steps)

    def __post_init__(self) -> None:
        if not 0 <= self.low_ms <= self.high_ms <= self.ceiling_ms * (1 + 1e-9):
            raise ValueError(f"savings out of order: 0 <= {self.low_ms} <= {self.high_ms} <= {self.ceiling_ms}")


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of lost time, with its cost, place, and fix.

    `message`, `reasoning`, the texts and code of `fix`, and `savings.method` are templates over the names in
    `evidence`; a literal brace is doubled.
    """

    id: str
    """The check's code and a kebab name, stable for ever: `PD03.too-few-workers`."""
    severity: Severity
    confidence: Confidence
    message: str
    """One sentence: `the loop waits {wait_ms} per step for its next batch`."""
    evidence: tuple[Measurement, ...]
    fix: Fix
    savings: Savings
    location: Location | None = None
    reasoning: str = ""
    """Why this cause and not another."""
    rank_note: str = ""
    """Which ranks have it, when there are several: "all ranks", "rank 3 only"."""
    about: str = ""
    """Which of several things of one kind it is about, such as the loaders of a step; empty where there is one."""

    @property
    def is_opportunity(self) -> bool:
        """Whether it is one; else it is an ill, time lost to something wrong, and raises an alarm."""
        return self.severity is Severity.NOTE

    @property
    def fingerprint(self) -> str:
        """Stable over runs: no line number and no value goes into it."""
        place = f"{self.location.file}\0{self.location.function}" if self.location else "\0"
        return hashlib.sha256(f"{self.id}\0{place}".encode()).hexdigest()[:32]

    @property
    def key(self) -> tuple[str, int, str]:
        """Tells it from all others of one run: two lines of one function are two findings, and so are two loaders whose
        batches one line makes."""
        return self.fingerprint, self.location.line if self.location else 0, self.about


class OutcomeKind(str, Enum):
    """The five ways a check can end; `silence never looks like health`."""

    FOUND = "found"
    CLEAR = "clear"
    NOT_APPLICABLE = "not-applicable"
    CANNOT_TELL = "cannot-tell"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended. Build it with `found`, `clear`, `not_applicable` or `cannot_tell`."""

    kind: OutcomeKind
    reason: str = ""
    """One sentence, a template over `measurements`; for `cannot-tell` also how to get the evidence."""
    measurements: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()


def found(*findings: Finding, measurements: tuple[Measurement, ...] = ()) -> Outcome:
    """At least one finding."""
    if not findings:
        raise ValueError("found() needs a finding; say clear() with the numbers that clear it")
    return Outcome(OutcomeKind.FOUND, findings=findings, measurements=measurements)


def present(*findings: Finding | None) -> tuple[Finding, ...]:
    """Those that were made, in order: a question that finds nothing answers None."""
    return tuple(finding for finding in findings if finding is not None)


def clear(reason: str, *measurements: Measurement) -> Outcome:
    """Looked at and fine; `measurements` are the numbers that say so."""
    if not measurements:
        raise ValueError("clear() needs the numbers that clear it")
    return Outcome(OutcomeKind.CLEAR, reason, measurements)


def not_applicable(reason: str) -> Outcome:
    """The question does not arise in this job."""
    return Outcome(OutcomeKind.NOT_APPLICABLE, reason)


def cannot_tell(reason: str) -> Outcome:
    """Evidence is missing; `reason` says which and how to get it."""
    return Outcome(OutcomeKind.CANNOT_TELL, reason)


L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Check(Generic[L]):
    """A check as the registry finds it: the module attribute `CHECK`."""

    code: str
    """`PD03`."""
    name: str
    """`etl`."""
    title: str
    """For a report's table, a few words."""
    limits: L
    """A frozen dataclass of thresholds; every field can be set in the configuration by its kebab name."""
    examine: Callable[[Evidence, L], Outcome]
    aliases: tuple[str, ...] = ()
    """Other names by which options, configuration and `explain` know it: `data-loading`."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called."""
        return (self.code, self.name, *self.aliases)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's outcome with its name, as the diagnosis keeps it."""

    code: str
    name: str
    title: str
    outcome: Outcome
    suppressed: tuple[SuppressedFinding, ...] = ()

    def changed(self, change: Callable[[Finding], Finding]) -> CheckResult:
        """The same with each of its findings changed."""
        return replace(self, outcome=replace(self.outcome, findings=tuple(map(change, self.outcome.findings))))


@dataclass(frozen=True, slots=True)
class SuppressedFinding:
    """A finding that the configuration silences, with the reason given there."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class IntegrityNote:
    """Something that limits how far the run can be trusted (codes PD90 and up)."""

    code: str
    """`PD92`."""
    name: str
    """`contended-machine`."""
    severity: Severity
    message: str
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True)
class Combined:
    """What all fixes of ills together save, per steady step; never the plain sum of their savings."""

    low_ms: float
    high_ms: float
    step_ms: float


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What no finding explains, per steady step."""

    ms: float
    share: float
    """Of the step."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything a report needs besides the evidence itself."""

    evidence: Evidence
    """Of the rank that the others wait for, or the slowest."""
    checks: tuple[CheckResult, ...]
    """In code order."""
    combined: Combined | None
    """None without ills or without a step."""
    integrity: tuple[IntegrityNote, ...] = ()
    trials: Trials | None = None
    """None when no remedy was tried."""
    past: Past = NO_PAST

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """All findings, ills first, and the largest predicted saving first among either."""
        return ranked(self.checks)

    @property
    def ills(self) -> tuple[Finding, ...]:
        """Time lost to something wrong, the largest predicted saving first."""
        return tuple(finding for finding in self.ranked if not finding.is_opportunity)

    @property
    def opportunities(self) -> tuple[Finding, ...]:
        """What would make the job faster though nothing is wrong, the largest predicted saving first."""
        return tuple(finding for finding in self.ranked if finding.is_opportunity)

    @property
    def unexplained(self) -> Unexplained | None:
        """The part of the steady step that no finding explains; None without a step.

        An opportunity that would help whatever the time goes into does not say what it goes into.
        """
        step = self.evidence.step
        if isinstance(step, Missing) or step.step_ms <= 0:
            return None
        explained = sum(
            finding.savings.ceiling_ms
            for finding in self.ranked
            if finding.savings.part is not Part.EPOCH and not (finding.savings.general and finding.is_opportunity)
        )
        rest = max(0.0, step.step_ms - explained)
        return Unexplained(rest, rest / step.step_ms)


def ranked(results: Sequence[CheckResult]) -> tuple[Finding, ...]:
    """All findings, opportunities last, by the middle of what they are predicted to save."""
    return tuple(sorted((finding for result in results for finding in result.outcome.findings), key=_rank))


def _rank(finding: Finding) -> tuple[bool, float, float, str]:
    saved = finding.savings
    return finding.is_opportunity, -(saved.low_ms + saved.high_ms), -saved.share, finding.id


# ---------------------------------------------------------------------------------------------------------
# What every check writes alike


def severity(cost_share: float, warning: float, error: float) -> Severity:
    """By the share of the step that the finding costs."""
    if cost_share >= error:
        return Severity.ERROR
    return Severity.WARNING if cost_share >= warning else Severity.NOTE


def location(site: Site | Missing | None) -> Location | None:
    """Where a finding points, if the evidence knows."""
    if site is None or isinstance(site, Missing) or not site.file:
        return None
    return Location(site.file, site.line, site.function)


def savings(
    step: Step,
    low: float,
    high: float,
    method: str,
    *,
    ceiling: float | None = None,
    part: Part = Part.COMPUTE,
    lanes: int = 0,
    general: bool = False,
    first: bool = False,
    ceiling_only: bool = False,
    counted: bool = False,
) -> Savings:
    """Per-step savings in ms, put in order: no bound below zero or above the ceiling, no ceiling above the step.

    Without a `ceiling` it is the higher bound.
    """
    whole_ms = _whole_ms(step, part)
    top = min(max(0.0, high if ceiling is None else ceiling), whole_ms)
    upper = min(max(0.0, high), top)
    return Savings(
        ceiling_ms=top,
        low_ms=min(max(0.0, low), upper),
        high_ms=upper,
        share=top / whole_ms if whole_ms > 0 else 0.0,
        method=method,
        part=part,
        lanes=lanes,
        general=general,
        first=first,
        ceiling_only=ceiling_only,
        counted=counted,
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes of every steady step, as a finding weighs it and writes it."""

    step: Step
    ms: float

    @property
    def share(self) -> float:
        """Of the step."""
        return self.ms / self.step.step_ms if self.step.step_ms > 0 else 0.0

    def severity(self, warning: float, error: float) -> Severity:
        """By its share, against the shares from which on it is a warning and an error."""
        return severity(self.share, warning, error)

    def measured(self, label: str = "per step", of: str = "of the step") -> tuple[Measurement, Measurement]:
        """`{cost_ms}` and `{cost_share}`."""
        return milliseconds("cost_ms", self.ms, label), share("cost_share", self.share, of)

    def savings(self, fractions: tuple[float, float], method: str, part: Part = Part.COMPUTE) -> Savings:
        """Where a fix saves between those fractions of it."""
        low, high = (fraction * self.ms for fraction in fractions)
        return savings(self.step, low, high, method, ceiling=self.ms, part=part)


def milliseconds(name: str, value: float, label: str = "") -> Measurement:
    """A duration per step, or of one event as the label says."""
    return Measurement(name, value, "ms", label)


def share(name: str, value: float, label: str = "") -> Measurement:
    """A fraction of 1."""
    return Measurement(name, value, "share", label)
