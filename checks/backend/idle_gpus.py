"""GPUs of this machine that nobody uses, beside the one that the job uses."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, savings
from perfdoctor.api.quantities import Missing

from .case import Case


def idle_gpus(case: Case) -> Finding | None:
    """Unless somebody chose that one."""
    host, step = case.evidence.host, case.step
    if isinstance(host, Missing):
        return None
    visible = case.backend.variable("CUDA_VISIBLE_DEVICES")
    chosen = visible is not None and "," not in visible
    if not host.gpus_idle or len(host.gpus_in_use) != 1 or case.evidence.job.world_size > 1 or chosen:
        return None
    count = len(host.gpus_idle) + 1
    return Finding(
        id="PD01.idle-gpus",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="{idle:more GPU of this machine is|more GPUs of this machine are} idle: the job trains on one",
        reasoning="the job has one rank on one GPU, and CUDA_VISIBLE_DEVICES does not confine it to that",
        evidence=(Measurement("idle", count - 1, "count", "GPUs that nobody used"), *case.used()),
        fix=Fix(
            text="Train with DistributedDataParallel, where each GPU takes a share of the batch. Leave them if other "
            "users need them.",
            code=f"torchrun --nproc-per-node {count} train.py",
            language="bash",
            risk="A larger global batch changes the optimisation.",
        ),
        savings=savings(
            step,
            0.0,
            0.0,
            "not predicted; the ceiling is the same global batch on all GPUs",
            ceiling=step.parts.compute * (1 - 1 / count),
        ),
    )
