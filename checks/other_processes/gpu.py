"""The job's own time on a GPU, which a busy GPU alone does not tell."""

from __future__ import annotations

from perfdoctor.api.quantities import Missing

from .case import Case


def busy_ms(case: Case) -> float | None:
    """Of the step, in the job's own kernels; None without a GPU, or without the device's own time."""
    ops = case.evidence.ops
    if not case.evidence.on_cuda or isinstance(ops, Missing) or ops.device_busy_ms is None:
        return None
    return min(ops.device_busy_ms, case.step.step_ms)
