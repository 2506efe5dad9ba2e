"""What all checks say of a run together: everything that a report needs besides the evidence itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..evidence.model import Evidence, Missing
from .findings import Finding, Measurement, Part, Severity
from .measured import NO_PAST, Past, Trials
from .outcomes import Outcome


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
