"""Parameters on both sides: the GPU waits while the host computes."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, milliseconds, share
from perfdoctor.api.quantities import Missing

from .case import Case


def part_on_cpu(case: Case) -> Finding | None:
    """By the time without a kernel on the device."""
    elements, ops, limits = dict(case.backend.parameters_by_device), case.evidence.ops, case.limits
    if not elements.get("cpu") or isinstance(ops, Missing) or ops.device_busy_ms is None:
        return None
    idle = Cost(case.step, max(0.0, case.step.working_ms - ops.device_busy_ms))
    if idle.share < limits.min_share:
        return None
    return Finding(
        id="PD01.part-on-cpu",
        severity=idle.severity(limits.min_share, limits.error_share),
        confidence=Confidence.LOW,
        message="{on_cpu} of the parameters are on the CPU, and the GPU is idle for {idle_ms} per step",
        reasoning="the optimizer holds parameters on {device}; layers on the CPU compute there, and copy their inputs "
        "and outputs",
        evidence=(
            share("on_cpu", elements["cpu"] / max(1, sum(elements.values())), "of the parameters on the CPU"),
            milliseconds("idle_ms", idle.ms, "without a kernel on the device, per step"),
            *case.used(),
        ),
        fix=Fix(
            text="Move the whole model; a module kept in a plain list or made after `.to()` is left behind.",
            code="model = model.to(device)  # before the optimizer; submodules in nn.ModuleList, not in a list",
            risk="If an offloading framework put them there, the GPU's memory may not hold them.",
        ),
        savings=idle.savings(
            (0.0, 0.9), "the time without a kernel on the GPU; how much those parameters cause was not measured"
        ),
    )
