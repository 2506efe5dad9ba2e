"""What trials of remedies measured, as the report tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

WORTH = 1.03
"""A smaller gain is not worth a change to the job."""


COMBINED = "+"
"""Between the names of remedies that are in place together."""


class Verdict(str, Enum):
    """How a trial ended."""

    HELPED = "helped"
    HURT = "hurt"
    NO_DIFFERENCE = "no-difference"
    """The interval covers 1: nothing shown, either way."""
    NOT_MEASURED = "not-measured"
    """It was begun, and says nothing: `reason` says why."""
    NOT_TRIED = "not-tried"
    """It was not begun: `reason` says why."""


@dataclass(frozen=True, slots=True)
class Range:
    """Of a speed-up: 1.5 is "1.5x"."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric one, because factors multiply."""
        return float((self.low * self.high) ** 0.5)


@dataclass(frozen=True, slots=True)
class Gain:
    """Speed-up of the job's steps with the remedy, per sample."""

    factor: float
    low: float
    high: float
    """99 % interval, from pairs of blocks."""
    pairs: int
    dropped: int = 0
    """Pairs left out because another process had the CPU."""
    steps: int = 0
    """In the shortest block; 0 where the unit is a launch."""
    step_ms: float = 0.0
    """A step without the remedy, meanwhile."""

    @property
    def no_use(self) -> bool:
        """Whether the interval excludes a gain worth the change."""
        return self.high < WORTH


@dataclass(frozen=True, slots=True)
class Trial:
    """One remedy, or several joined by `+`."""

    remedy: str
    verdict: Verdict
    gain: Gain | None = None
    predicted: Range | None = None
    findings: tuple[str, ...] = ()
    """Fingerprints of the findings that name it."""
    reason: str = ""
    text: str = ""
    """What the remedy does."""
    keep: str = ""
    """The lines that make it permanent."""
    language: str = "python"
    numerics: bool = False
    """Results change, within what the remedy says."""
    per_sample: bool = False
    """A step has more samples with it."""
    start_s: float | None = None
    """What its first steps took besides, once; None where it has no such start."""
    caution: str = ""
    """What it risks; "" where it risks nothing."""

    @property
    def names(self) -> tuple[str, ...]:
        """The remedies one by one."""
        return tuple(self.remedy.split(COMBINED))

    @property
    def pays_after_steps(self) -> int | None:
        """The step from which on the start has been earned back; None where it never is, or nothing is to be."""
        if self.start_s is None or self.gain is None or self.gain.factor <= 1:
            return None
        saved_ms = self.gain.step_ms * (1 - 1 / self.gain.factor)
        return math.ceil(round(1000 * self.start_s / saved_ms, 3)) if saved_ms > 0 else None


@dataclass(frozen=True, slots=True)
class Past:
    """How predictions compared with trials on this machine, before this run."""

    typical_error: float | None = None
    """Median of how far they were off: 0.1 is 10 %. None while too few are known."""
    trials: int = 0
    """Of how many trials that is known."""


NO_PAST = Past()


@dataclass(frozen=True, slots=True)
class Trials:
    """All trials of a run, in the order in which they were planned."""

    single: tuple[Trial, ...]
    together: Trial | None = None
    """Everything that helped, at once; None where fewer than two did."""
    seconds: float = 0.0
    typical_error: float | None = None
    """Median of how far predictions on this machine were from trials before this run: 0.1 is 10 %."""
    past: int = 0
    """How many trials that is the median of."""
    problem: str = ""
    """Why nothing was tried; "" when something was."""

    def of(self, fingerprint: str) -> tuple[Trial, ...]:
        """The trials of one finding's remedies."""
        return tuple(trial for trial in self.single if fingerprint in trial.findings)
