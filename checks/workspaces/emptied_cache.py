"""`torch.cuda.empty_cache()` in the loop."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, savings
from perfdoctor.api.quantities import CallSite, Step

from .limits import Limits


def emptied_cache(call: CallSite, step: Step, limits: Limits) -> Finding | None:
    """None for a line that costs little."""
    cost = Cost(step, call.ms_per_step)
    if cost.share < limits.min_share:
        return None
    return Finding(
        id="PD08.empty-cache",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="`torch.cuda.empty_cache()` in the loop takes {cost_ms} per step ({cost_share})",
        reasoning="it returns memory to the driver that the next step asks for again, {calls:time} per step",
        evidence=(
            *cost.measured("the calls per step"),
            Measurement("calls", call.calls_per_step, "count", "calls per step"),
        ),
        location=location(call.site),
        fix=Fix(
            text="Take the call out of the loop; torch reuses what it holds.",
            code="# torch.cuda.empty_cache()  # not needed; for fragmentation, before Python starts:\n"
            "# export PYTORCH_ALLOC_CONF=expandable_segments:True",
            risk="Other processes on the GPU see less free memory.",
            remedies=("memory.empty-cache",),
        ),
        savings=savings(
            step, cost.ms, 2 * cost.ms, "the measured calls, and as much again for allocating anew", part=Part.OTHER
        ),
    )
