"""Tests that `torch.distributions` makes of what it is given, unless it is told not to."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, Severity, location, savings
from perfdoctor.api.quantities import Evidence, Step

from .._shared.aside import saved_ms, told_here, validates
from .limits import Limits


def validated_distributions(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """All lines together, as one switch is for all. An opportunity: it is what torch does by itself."""
    found = [one for one in told_here(evidence.metrics, evidence) if validates(one)]
    low, high = (sum(ms) for ms in zip(*(saved_ms(one) for one in found), strict=True)) if found else (0.0, 0.0)
    if (low + high) / 2 < limits.min_share * step.step_ms:
        return None
    cost = Cost(step, (low + high) / 2)
    return Finding(
        id="PD16.validated-distributions",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="`torch.distributions` tests what it is given, in every step: {cost_ms} ({cost_share})",
        reasoning="{operators:operator} per step test parameters and samples for what their distribution allows, and "
        "Python reads each answer; torch does so unless it is told not to",
        evidence=(
            *cost.measured(),
            Measurement("operators", sum(one.ops_per_step for one in found), "count", "operators of it per step"),
            Measurement("lines", len({one.at for one in found}), "count", "lines with such tests"),
        ),
        location=location(max(found, key=lambda one: one.forward_ms).at),
        fix=Fix(
            text="Switch it off for training, before the first distribution is made, and on to look for an error.",
            code="torch.distributions.Distribution.set_default_validate_args(False)",
            risk="A NaN goes on to the loss, where the error named the distribution.",
            remedies=("debug.no-validation",),
        ),
        savings=savings(step, low, high, "operators of two steps, timed one by one in the job itself", part=Part.OTHER),
    )
