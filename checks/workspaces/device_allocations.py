"""Calls of the driver for memory, by a trace: what the caching allocator is there to avoid."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    clear,
    found,
    location,
    milliseconds,
)
from perfdoctor.api.quantities import Idle

from .._shared.traced import Traced


def in_trace(case: Traced) -> Outcome:
    """By the time in which the device has nothing to do while the driver allocates or frees."""
    idled, calls = case.idled(Idle.ALLOCATOR), case.activity.allocator
    called = Measurement("calls", calls.per_step if calls else 0.0, "count", "allocator calls of the driver per step")
    took = milliseconds("calls_ms", calls.ms if calls else 0.0, "in them, per step")
    if idled is None or calls is None:
        return clear("the driver is asked for memory {calls:time} per step: {calls_ms}", called, took)
    idle, cost = idled
    finding = Finding(
        id="PD08.device-allocations",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="the device has nothing to do for {cost_ms} per step ({cost_share}) while the driver allocates and "
        "frees its memory",
        reasoning="{calls:call} per step, most of the time in `{name}`: torch's caching allocator makes none in a "
        "steady step, so it is switched off, emptied in the loop, or out of room",
        evidence=(
            *cost.measured("idle during allocator calls, per step"),
            called,
            took,
            Measurement("name", calls.name, "text", "the call that takes longest"),
        ),
        location=location(idle.at),
        fix=Fix(
            text="Let torch keep the memory: unset PYTORCH_NO_CUDA_MEMORY_CACHING (PYTORCH_NO_HIP_MEMORY_CACHING), "
            "take `torch.cuda.empty_cache()` out of the loop; where memory is short, let segments grow.",
            code="unset PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NO_HIP_MEMORY_CACHING\n"
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
            language="bash",
        ),
        savings=case.at_most(cost.ms, "the device's idle time during allocator calls"),
    )
    return found(finding, measurements=(called, took))
