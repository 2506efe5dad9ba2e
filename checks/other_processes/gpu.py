"""A GPU that other processes use too, or whose clocks are held down."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, milliseconds, share
from perfdoctor.api.quantities import Missing

from .case import OUTSIDE, Case


def busy_ms(case: Case) -> float | None:
    """Of the step, in the job's own kernels, which a busy GPU alone does not tell.

    None without a GPU, or without the device's own time.
    """
    ops = case.evidence.ops
    if not case.evidence.on_cuda or isinstance(ops, Missing) or ops.device_busy_ms is None:
        return None
    return min(ops.device_busy_ms, case.step.step_ms)


_SHARED_SAVES = (0.25, 1.0)
"""Of the time that others' kernels ran: some of it fell into the job's own gaps."""


def shared_gpu(case: Case) -> Finding | None:
    """By its utilisation beyond the job's own kernels."""
    host, used, busy = case.host, case.host.gpu_utilisation, busy_ms(case)
    if isinstance(used, Missing) or busy is None:
        return None
    excess = used - busy / case.step.step_ms
    cost = case.worth(max(0.0, excess) * case.step.step_ms)
    if excess < case.limits.gpu_excess or cost is None:
        return None
    owner = ", ".join(f"pid {other.pid}" for other in host.gpu_other_processes[:3]) or OUTSIDE
    return Finding(
        id="PD12.gpu-shared",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM if host.gpu_other_processes else Confidence.LOW,
        message="the GPU is shared with {owner}: {used} busy, with the job's own kernels only {own}",
        reasoning="kernels of different processes take turns on a GPU, they do not run side by side",
        evidence=(
            Measurement("owner", owner, "text", "who else uses it"),
            share("used", used, "GPU utilisation"),
            share("own", busy / case.step.step_ms, "of the step in the job's own kernels"),
            milliseconds("cost_ms", cost.ms, "of other kernels per step"),
        ),
        fix=Fix(
            text="Use a GPU of your own, or a MIG slice; where processes must share one, MPS lets their kernels "
            "overlap.",
            code="nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
            language="bash",
            risk="The other process may be somebody's work.",
        ),
        savings=cost.savings(_SHARED_SAVES, "utilisation that NVML reports beyond the job's own kernel time"),
    )


_CLOCK_SAVES = (0.5, 1.0)
"""Of the clocks lost: kernels that wait for memory do not follow the SM clock."""


def throttled_gpu(case: Case) -> Finding | None:
    """By the clocks lost while the job's kernels ran."""
    times, clock, busy = case.host.gpu_throttled_share, case.host.gpu_throttled_clock, busy_ms(case)
    if isinstance(times, Missing) or isinstance(clock, Missing) or busy is None or times < case.limits.gpu_throttled:
        return None
    cost = case.worth(busy * times * max(0.0, 1 - clock))
    if cost is None:
        return None
    return Finding(
        id="PD12.gpu-throttled",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="the GPU is throttled to {clock} of its clock for {times} of the time: about {cost_ms} per step",
        reasoning="the driver gives a hardware slowdown, thermal or power-brake reason, not the ordinary power cap",
        evidence=(
            share("clock", clock, "of the highest SM clock while held down"),
            share("times", times, "of the samples with clocks held down"),
            milliseconds("cost_ms", cost.ms, "lost per step"),
        ),
        fix=Fix(
            text="Check the machine's cooling and power supply, or use another machine.",
            code="nvidia-smi --query-gpu=clocks_event_reasons.active,temperature.gpu,clocks.sm --format=csv",
            language="bash",
        ),
        savings=cost.savings(_CLOCK_SAVES, "the job's kernel time at the clocks lost, if it followed the SM clock"),
    )
