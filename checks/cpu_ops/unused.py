"""Work whose result nobody reads."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, location, present, savings
from perfdoctor.api.quantities import AsideWork, Evidence, Step

from .._shared.aside import measured, saved_ms, told_here
from .limits import Limits


def unused_work(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line; none where all is read, or nobody looked."""
    return present(*(_finding(step, one, limits) for one in told_here(evidence.unused_work, evidence)))


def _finding(step: Step, one: AsideWork, limits: Limits) -> Finding | None:
    low, high = saved_ms(one)
    cost = Cost(step, one.forward_ms)
    if (low + high) / 2 < limits.repeated_share * step.step_ms:
        return None
    return Finding(
        id="PD10.unused-work",
        severity=cost.severity(limits.repeated_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="nothing reads what operators of this line compute: {cost_ms} per step ({cost_share})",
        reasoning="{operators:operator} per step, most of the time {names}, end in tensors that no operator reads, no "
        "backward pass goes through, and that are let go in the same step or the next",
        evidence=(*cost.measured(), *measured(one)),
        location=location(one.at),
        fix=Fix(
            text="Leave out what makes it, or compute it only where it is used (in evaluation, say).",
            code="if not self.training:\n    rebuilt = self.decoder(hidden)",
            risk="Parameters that nothing else uses get no gradients, then as now.",
        ),
        savings=savings(step, low, high, "operators of two steps, timed one by one in the job itself"),
    )
