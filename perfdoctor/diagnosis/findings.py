"""What a check finds: causes with their costs, places and fixes, and the numbers behind them.

Numbers travel as typed measurements, never inside text: a message is a template whose `{placeholders}` name
measurements, and `report/wording.py` alone turns them into words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..evidence.model import JobAnatomy, Step, WholeJob

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

    def whole_ms(self, step: Step) -> float:
        """The step that is billed; with what irregular ones add to it, where a part of that is."""
        return step.step_ms + (step.irregular_ms if self is Part.EPOCH else 0.0)


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
        """The step that they are taken off, ms."""
        return self.part.whole_ms(step)

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
