"""Types converted to one another and back within a step."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import Missing

from .._shared.lines import asked_for
from .case import Case


def conversions(case: Case) -> Finding | None:
    """At most one, for all lines together."""
    sites = case.evidence.call_sites
    if isinstance(sites, Missing):
        return None
    # Autocast converts by design: its own pair is its own business.
    autocast = {"float32", case.precision.autocast_dtype}
    lines = [call for call in sites if call.kind == "convert" and set(call.detail.split("->")) != autocast]
    directions = {call.detail for call in lines}
    lines = [call for call in lines if "->".join(reversed(call.detail.split("->"))) in directions]
    cost = Cost(case.step, sum(call.ms_per_step for call in lines))
    if cost.share < case.limits.min_share:
        return None
    worst = max(asked_for(case.evidence, lines), key=lambda call: call.ms_per_step)
    return Finding(
        id="PD07.conversions",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="converting types back and forth takes {cost_ms} per step ({cost_share})",
        reasoning="most of it by {conversion}, {calls:time} per step",
        evidence=(
            *cost.measured("conversions per step"),
            Measurement("conversion", worst.detail, "text", "the costliest conversion"),
            Measurement("calls", worst.calls_per_step, "count", "its calls per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Choose one type for the whole path and convert once, where data enters.",
            code="x = x.float()  # once; then no .double(), .half() or .to(dtype) on the way",
            risk="Rounding changes where a wider type was used on purpose.",
        ),
        savings=cost.savings((0.5, 0.95), "the measured time of the conversions"),
    )
