"""What a trace shows of host and device side by side: what every finding from one needs."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Cost, Measurement, Part, Savings, Severity, savings, share
from perfdoctor.api.quantities import Activity, Idle, IdleTime, Missing, Step

MIN_SHARE = 0.05
"""Of the step, as for costs that are measured in every step."""
ERROR_SHARE = 0.20
"""A judgement: a fifth of the device's time."""
BUSY = 0.8
"""From this share of the step with work on, the device bounds it, and what its kernels take counts."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A step of which a trace shows host and device."""

    step: Step
    activity: Activity

    @property
    def device_bound(self) -> bool:
        """The host keeps the device busy: nothing it does beside that costs time."""
        return self.activity.idle_share <= 1 - BUSY

    def worth(self, ms: float) -> Cost | None:
        """What that costs per step; None where it is too little for a finding."""
        cost = Cost(self.step, ms)
        return cost if cost.share >= MIN_SHARE else None

    def idled(self, cause: Idle) -> tuple[IdleTime, Cost] | None:
        """What the device idled for one cause, and what that costs; None where it is too little for a finding."""
        idle = self.activity.idle_by(cause)
        cost = self.worth(idle.ms) if idle is not None else None
        return None if idle is None or cost is None else (idle, cost)

    def severity(self, cost: Cost) -> Severity:
        return cost.severity(MIN_SHARE, ERROR_SHARE)

    def at_most(self, ms: float, why: str) -> Savings:
        """As of the function."""
        return at_most(self.step, ms, why)

    def measured(self) -> tuple[Measurement, ...]:
        """What every outcome from a trace shows."""
        return (share("idle_share", self.activity.idle_share, "of the step without any work on the device"),)


def at_most(step: Step, ms: float, why: str, part: Part = Part.COMPUTE) -> Savings:
    """A ceiling: work that the host does later, and other waits, may grow into what is saved."""
    return savings(
        step,
        0.0,
        ms,
        f"a ceiling, no forecast: {why}; other work grows into the gap, and came back as 34 to 62 % of it in a job "
        "whose waiting for data was mended",
        part=part,
        ceiling_only=True,
    )


def traced(step: Step, activity: Activity | Missing) -> Traced | None:
    """None for a run of one's own, and for a trace without a device."""
    return None if isinstance(activity, Missing) else Traced(step, activity)
