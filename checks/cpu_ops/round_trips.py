"""Data that leaves the device and comes back within the step."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, present
from perfdoctor.api.quantities import CallSite, Step

from .._shared.lines import function
from .limits import Limits

_COPIES_SAVED = (0.5, 1.0)
"""Of copies back and forth; what they were made for must be done on the device."""


def round_trips(step: Step, calls: tuple[CallSite, ...], limits: Limits) -> tuple[Finding, ...]:
    """One for each line that copies to the host what its function copies back."""
    out = [call for call in calls if call.kind == "copy" and call.detail.endswith("->cpu")]
    back = [call for call in calls if call.kind == "copy" and call.detail.startswith("cpu->")]
    return present(*(_round_trip(step, there, back, limits) for there in out))


def _round_trip(step: Step, there: CallSite, back: list[CallSite], limits: Limits) -> Finding | None:
    # What a loader brings crosses once; a trip needs both directions in the same step, in one function.
    here = [call for call in back if function(call.site) == function(there.site)]
    cost = Cost(step, there.ms_per_step + sum(call.ms_per_step for call in here))
    if not here or there.calls_per_step < 1 or cost.share < limits.copy_share:
        return None
    return Finding(
        id="PD10.round-trip",
        severity=cost.severity(limits.copy_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="data leaves the GPU and comes back in every step: {cost_ms} ({cost_share})",
        reasoning="{copies:copy per step goes|copies per step go} to the host here and {returns:comes|come} back in "
        "the same function; the first direction also waits for the device",
        evidence=(
            *cost.measured("copies per step"),
            Measurement("copies", there.calls_per_step, "count", "copies to the host per step"),
            Measurement("returns", sum(call.calls_per_step for call in here), "count", "copies back per step"),
        ),
        location=location(there.site),
        fix=Fix(
            text="Do on the device what is done on the host, and create tensors there.",
            code="mask = torch.zeros(n, device=x.device)  # instead of torch.zeros(n).to(x.device)",
        ),
        savings=cost.savings(_COPIES_SAVED, "the measured copies in both directions, half of them or all"),
    )
