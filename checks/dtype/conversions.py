"""Types converted to one another and back within a step."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import CallSite, Evidence, Missing, Precision, Step

from .._shared.limits import CostLimits
from .._shared.lines import asked_for


def findings(evidence: Evidence, step: Step, precision: Precision, limits: CostLimits) -> list[Finding]:
    """At most one, for all lines together."""
    sites = evidence.call_sites
    if isinstance(sites, Missing):
        return []
    # Autocast converts by design: its own pair is its own business.
    autocast = {"float32", precision.autocast_dtype}
    lines = [call for call in sites if call.kind == "convert" and set(call.detail.split("->")) != autocast]
    directions = {call.detail for call in lines}
    lines = [call for call in lines if "->".join(reversed(call.detail.split("->"))) in directions]
    cost = sum(call.ms_per_step for call in lines)
    if cost / step.step_ms < limits.min_share:
        return []
    worst = max(asked_for(evidence, lines), key=lambda call: call.ms_per_step)
    return [_conversion(step, worst, cost, limits)]


def _conversion(step: Step, worst: CallSite, cost: float, limits: CostLimits) -> Finding:
    cost_share = cost / step.step_ms
    return Finding(
        id="PD07.conversions",
        severity=severity(cost_share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="types are converted back and forth for {cost_ms} a step, {cost_share} of it",
        reasoning="most of it by {conversion}, {calls:time} a step",
        evidence=(
            milliseconds("cost_ms", cost, "conversions per step"),
            share("cost_share", cost_share, "of the step"),
            Measurement("conversion", worst.detail, "text", "the costliest conversion"),
            Measurement("calls", worst.calls_per_step, "count", "its calls per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Choose one type for the whole path and convert once, where data enters.",
            code="x = x.float()  # once; then no .double(), .half() or .to(dtype) on the way",
            risk="Rounding changes where a wider type was used on purpose.",
        ),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=cost,
            low=0.5 * cost,
            high=0.95 * cost,
            method="the measured time of the conversions",
        ),
    )
