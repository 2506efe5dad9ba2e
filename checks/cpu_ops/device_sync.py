"""Scalars read out of tensors on a GPU: the host waits for each."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Part,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import CallSite, Evidence, Step

from .limits import Limits
from .scalar_reads import about_reads

_WAIT_LOST = (0.1, 0.9)
"""Of a read's duration on CUDA: the device works meanwhile, and idles only afterwards."""
READ_LATER = "total += loss.detach()\nif step % 50 == 0:\n    print((total / 50).item())\n    total.zero_()"
READ_LATER_RISK = "The values printed are older by up to 50 steps."
_COMPUTE_PARTS = ("forward", "backward", "optimizer")


def device_syncs(evidence: Evidence, step: Step, reads: tuple[CallSite, ...], limits: Limits) -> tuple[Finding, ...]:
    """One for each line whose reads cost enough, the dearest first; `reads` are those of the job."""
    if sum(call.calls_per_step for call in reads) < limits.cuda_reads:
        return ()
    return present(*(_device_sync(evidence, step, call, limits) for call in reads))


def _device_sync(evidence: Evidence, step: Step, call: CallSite, limits: Limits) -> Finding | None:
    cost = Cost(step, call.ms_per_step)
    felt = Cost(step, evidence.felt_ms(cost.ms))
    if felt.share < limits.cuda_read_share:
        return None
    low, high = (min(felt.ms, fraction * cost.ms) for fraction in _WAIT_LOST)
    return Finding(
        id="PD10.device-sync",
        severity=Cost(step, high).severity(limits.read_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="this line makes the host wait for the GPU {reads:time} per step: {cost_ms} ({cost_share})",
        reasoning="reading a scalar waits for everything that the device was asked to do; until the host has asked for "
        "more, the device idles",
        evidence=(
            *about_reads(cost, call),
            milliseconds("felt_ms", felt.ms, "of that, the most for which the device can have been without work"),
        ),
        location=location(call.site),
        fix=Fix(
            text="Keep the value on the device, and read it every 50 steps; replace an `if` on a tensor by "
            "`torch.where`.",
            code=READ_LATER,
            risk=READ_LATER_RISK,
            remedies=("reads.deferred",),
        ),
        savings=savings(
            step,
            low,
            high,
            "the time that the host waited; 10 to 90 % of it is lost, by how far ahead it would have been, but no more "
            "than the device can have been without work",
            ceiling=felt.ms,
            part=Part.COMPUTE if call.detail in _COMPUTE_PARTS else Part.OTHER,
        ),
    )
