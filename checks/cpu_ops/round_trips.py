"""Data that leaves the device and comes back within the step."""

from __future__ import annotations

from typing import Protocol

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
from perfdoctor.api.quantities import CallSite, Step

from .._shared.lines import function


class CopyLimits(Protocol):
    """The thresholds that concern it."""

    @property
    def copy_share(self) -> float: ...
    @property
    def error_share(self) -> float: ...


_COPIES_SAVED = (0.5, 1.0)
"""Of copies back and forth; what they were made for must be done on the device."""


def round_trips(step: Step, calls: tuple[CallSite, ...], limits: CopyLimits) -> list[Finding]:
    """Data that leaves the device and comes back within the step."""
    out = [call for call in calls if call.kind == "copy" and call.detail.endswith("->cpu")]
    back = [call for call in calls if call.kind == "copy" and call.detail.startswith("cpu->")]
    # What a loader brings crosses once; a trip needs both directions in the same step, in one function.
    findings = []
    for there in out:
        here = [call for call in back if function(call.site) == function(there.site)]
        if not here or there.calls_per_step < 1:
            continue
        cost = there.ms_per_step + sum(call.ms_per_step for call in here)
        if cost / step.step_ms >= limits.copy_share:
            findings.append(_round_trip(step, there, here, cost, limits))
    return findings


def _round_trip(step: Step, there: CallSite, back: list[CallSite], cost: float, limits: CopyLimits) -> Finding:
    low, high = (fraction * cost for fraction in _COPIES_SAVED)
    return Finding(
        id="PD10.round-trip",
        severity=severity(cost / step.step_ms, limits.copy_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="data leaves the device and comes back in every step, {cost_ms}, {cost_share} of it",
        reasoning="{copies:copy a step goes|copies a step go} to the host here and {returns:comes|come} back in "
        "the same function; the first direction also waits for the device",
        evidence=(
            milliseconds("cost_ms", cost, "copies per step"),
            share("cost_share", cost / step.step_ms, "of the step"),
            Measurement("copies", there.calls_per_step, "count", "copies to the host per step"),
            Measurement("returns", sum(call.calls_per_step for call in back), "count", "copies back per step"),
        ),
        location=location(there.site),
        fix=Fix(
            text="Do on the device what is done on the host, and create tensors there.",
            code="mask = torch.zeros(n, device=x.device)  # instead of torch.zeros(n).to(x.device)",
        ),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=cost,
            low=low,
            high=high,
            method="the measured copies in both directions, half of them or all",
        ),
    )
