"""A GPU that other processes use too."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, milliseconds, share
from perfdoctor.api.quantities import Missing

from .case import OUTSIDE, Case
from .gpu import busy_ms

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
