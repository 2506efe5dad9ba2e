"""A GPU whose clocks are held down by heat or power delivery."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, milliseconds, share
from perfdoctor.api.quantities import Missing

from .case import Case
from .gpu import busy_ms

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
