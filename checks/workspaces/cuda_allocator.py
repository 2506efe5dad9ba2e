"""What the CUDA allocator asks of the driver in steady state, and `empty_cache` in the loop."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    savings,
    share,
)
from perfdoctor.api.quantities import CallSite, CudaMemory, Missing, Step

from .limits import Limits

_DRIVER_CALL_MS = (0.1, 1.0)
"""One cudaMalloc or cudaFree with its synchronisation; from public traces, not measured here."""
_SEGMENTS = "export PYTORCH_ALLOC_CONF=expandable_segments:True"
_FOUND = {
    "caching-disabled": (
        "the CUDA caching allocator is switched off: {allocs:driver allocation} per step",
        "Switch it on again.",
        "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
    ),
    "fragmentation": (
        "the CUDA cache is fragmented, and flushed {retries:time} per step to find room",
        "Let segments grow instead of being cut.",
        _SEGMENTS,
    ),
    "alloc-retries": (
        "the GPU's memory is full, and the CUDA cache is flushed {retries:time} per step to find room",
        "Leave some room: a smaller batch, activation checkpointing, or expandable segments.",
        _SEGMENTS,
    ),
}
"""Name of the finding -> its message, fix and code."""


def cuda_allocator(memory: CudaMemory | Missing, step: Step, limits: Limits) -> Finding | None:
    """A cache that is off, cut up, or too small."""
    if isinstance(memory, Missing):
        return None
    if not memory.caching and memory.device_allocs_per_step > 0:
        return _finding("caching-disabled", memory, step, limits, memory.device_allocs_per_step)
    if memory.alloc_retries_per_step > limits.max_retries_per_step:
        name = "fragmentation" if memory.fragmentation > limits.max_fragmentation else "alloc-retries"
        calls = memory.device_allocs_per_step + memory.alloc_retries_per_step
        return _finding(name, memory, step, limits, calls)
    return None


def _finding(name: str, memory: CudaMemory, step: Step, limits: Limits, calls: float) -> Finding:
    low, high = (calls * 2 * ms for ms in _DRIVER_CALL_MS)
    message, text, code = _FOUND[name]
    return Finding(
        id=f"PD08.{name}",
        severity=Cost(step, low).severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message=message,
        reasoning="an allocation that reaches the driver waits for the device; {fragmentation} of the reserved memory "
        "was not in use at the peak",
        evidence=(
            Measurement("allocs", memory.device_allocs_per_step, "count", "driver allocations per step"),
            Measurement("retries", memory.alloc_retries_per_step, "count", "cache flushes per step"),
            share("fragmentation", memory.fragmentation, "reserved but unused at the peak"),
            Measurement("reserved", memory.peak_reserved_bytes, "bytes", "reserved at the peak"),
            Measurement("total", memory.total_bytes, "bytes", "on the device"),
        ),
        fix=Fix(text=text, code=code, language="bash", remedies=("memory.cuda-alloc-conf",)),
        savings=savings(step, low, high, "driver calls per step at 0.1 to 1 ms each, a figure from public traces"),
    )


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
