"""What every finding about communication needs."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Confidence, Cost, Severity
from perfdoctor.api.quantities import Communication, Evidence, Step

_MESSAGE_BYTES = 25 << 20
"""torch's default size of a bucket: from there on sending takes longer than the round trip."""
_MANY = 4
"""Times the messages of that size: one small one is made anyhow, a first bucket or a model's root, and one for each of
the largest layers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """As for other checks whose cost is measured in every step."""
    error_share: float = 0.20
    """A judgement: a fifth of the time of all ranks."""


@dataclass(frozen=True, slots=True)
class Case:
    """One rank of a job whose ranks were compared."""

    evidence: Evidence
    step: Step
    together: Communication
    limits: Limits

    def worth(self, ms: float) -> Cost | None:
        """What that costs per step; None where it is too little for a finding."""
        cost = Cost(self.step, ms)
        return cost if ms > 0 and cost.share >= self.limits.min_share else None

    def severity(self, cost: Cost) -> Severity:
        return cost.severity(self.limits.min_share, self.limits.error_share)

    @property
    def confidence(self) -> Confidence:
        """Of ranks on other machines nobody knows how late they were."""
        seen_all = len(self.together.ranks) == self.evidence.job.world_size
        return Confidence.HIGH if seen_all else Confidence.MEDIUM


def enough(messages: int, total_bytes: int) -> int | None:
    """How few messages would do; None where there are not many times as many."""
    few = 1 + -(-total_bytes // _MESSAGE_BYTES)
    return few if messages >= _MANY * few else None
