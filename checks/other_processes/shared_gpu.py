"""A GPU that others use too, or whose clocks are held down: the half of other-processes that needs one."""

from __future__ import annotations

from typing import Protocol

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, Host, Missing, Step

from .._shared.limits import CostLimits

_SHARED_SAVES = (0.25, 1.0)
"""Of the time that kernels of other processes ran: some of it fell into the job's own gaps."""
_CLOCK_SAVES = (0.5, 1.0)
"""Of the clocks lost: kernels that wait for memory do not follow the SM clock."""


class GpuLimits(CostLimits, Protocol):
    """The thresholds that concern a GPU."""

    @property
    def gpu_excess(self) -> float: ...
    @property
    def gpu_throttled(self) -> float: ...


def gpu_findings(evidence: Evidence, step: Step, host: Host, limits: GpuLimits) -> list[Finding]:
    """Nothing without the device's own time: a busy GPU alone says nothing about who keeps it busy."""
    ops = evidence.ops
    if not evidence.on_cuda or isinstance(ops, Missing) or ops.device_busy_ms is None:
        return []
    busy_ms = min(ops.device_busy_ms, step.step_ms)
    return [*_shared(step, host, limits, busy_ms), *_slowed(step, host, limits, busy_ms)]


def _shared(step: Step, host: Host, limits: GpuLimits, busy_ms: float) -> list[Finding]:
    used = host.gpu_utilisation
    if isinstance(used, Missing):
        return []
    excess = used - busy_ms / step.step_ms
    cost = max(0.0, excess) * step.step_ms
    if excess < limits.gpu_excess or cost / step.step_ms < limits.min_share:
        return []
    others = host.gpu_other_processes
    owner = ", ".join(f"pid {process.pid}" for process in others[:3]) or "somebody outside this container"
    return [
        Finding(
            id="PD12.gpu-shared",
            severity=severity(cost / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM if others else Confidence.LOW,
            message="the GPU is shared with {owner}: it was busy for {used} of the time, with the job's kernels only "
            "for {own}",
            reasoning="kernels of different processes take turns on a GPU, they do not run side by side",
            evidence=(
                Measurement("owner", owner, "text", "who else uses it"),
                share("used", used, "GPU utilisation"),
                share("own", busy_ms / step.step_ms, "of the step in the job's own kernels"),
                milliseconds("cost_ms", cost, "of other kernels per step"),
            ),
            fix=Fix(
                text="Use a GPU of your own, or a MIG slice; where processes must share one, MPS lets their kernels "
                "overlap.",
                code="nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
                language="bash",
                risk="The other process may be somebody's work.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=_SHARED_SAVES[0] * cost,
                high=_SHARED_SAVES[1] * cost,
                method="utilisation that NVML reports beyond the job's own kernel time",
            ),
        )
    ]


def _slowed(step: Step, host: Host, limits: GpuLimits, busy_ms: float) -> list[Finding]:
    times, clock = host.gpu_throttled_share, host.gpu_throttled_clock
    if isinstance(times, Missing) or isinstance(clock, Missing) or times < limits.gpu_throttled:
        return []
    cost = busy_ms * times * max(0.0, 1 - clock)
    if cost / step.step_ms < limits.min_share:
        return []
    return [
        Finding(
            id="PD12.gpu-throttled",
            severity=severity(cost / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="heat or power delivery holds the GPU's clocks at {clock} of their highest for {times} of the "
            "time: about {cost_ms} a step",
            reasoning="the driver gives a hardware slowdown, thermal or power-brake reason, not the ordinary power cap",
            evidence=(
                share("clock", clock, "of the highest SM clock while held down"),
                share("times", times, "of the samples with clocks held down"),
                milliseconds("cost_ms", cost, "lost per step"),
            ),
            fix=Fix(
                text="Look after cooling and power of that machine, or use another one.",
                code="nvidia-smi --query-gpu=clocks_event_reasons.active,temperature.gpu,clocks.sm --format=csv",
                language="bash",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=_CLOCK_SAVES[0] * cost,
                high=_CLOCK_SAVES[1] * cost,
                method="the job's kernel time at the clocks lost, if it followed the SM clock",
            ),
        )
    ]
