"""Some of the GPUs do little, or part of the model is not on one."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Missing

from .._shared.lines import model_place
from .._shared.wording import in_words_of
from .case import Case


def part_on_cpu(case: Case) -> Finding | None:
    """Parameters on both sides, and the GPU waits while the host computes: by the time without a kernel on it."""
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
        location=location(model_place(case.evidence)),
        fix=Fix(
            text="Move the whole model; a module kept in a plain list or made after `.to()` is left behind.",
            code="model = model.to(device)  # before the optimizer; submodules in nn.ModuleList, not in a list",
            risk="If an offloading framework put them there, the GPU's memory may not hold them.",
        ),
        savings=idle.savings(
            (0.0, 0.9), "the time without a kernel on the GPU; how much those parameters cause was not measured"
        ),
    )


_DATA_PARALLEL_SAVES = (0.05, 0.3)
"""Replicating the model, scattering and gathering in one process; not measured here."""


def data_parallel(case: Case) -> Finding | None:
    """One process drives several GPUs, whatever it costs: that was not measured."""
    host, step, limits = case.evidence.host, case.step, case.limits
    if isinstance(host, Missing) or not case.backend.data_parallel or len(host.gpus_in_use) < 2:
        return None
    low, high = (part * step.parts.compute for part in _DATA_PARALLEL_SAVES)
    return Finding(
        id="PD01.data-parallel",
        severity=Cost(step, high).severity(limits.min_share, limits.error_share),
        confidence=Confidence.LOW,
        message="nn.DataParallel drives {gpus:GPU} from the threads of one process",
        reasoning="it copies the model to every GPU in each step, and its threads share one interpreter lock",
        evidence=(Measurement("gpus", len(host.gpus_in_use), "count", "GPUs in use"), *case.used()),
        location=location(model_place(case.evidence)),
        fix=Fix(
            text="Use DistributedDataParallel, one process for each GPU.",
            code=in_words_of(
                case.evidence.job,
                "model = torch.nn.parallel.DistributedDataParallel(model)  # started by torchrun",
                lightning=f"trainer = Trainer(..., devices={len(host.gpus_in_use)}, strategy='ddp')",
                transformers=f"# torchrun --nproc-per-node {len(host.gpus_in_use)} train.py",
            ),
            risk="Batch norm statistics and random numbers are then those of each process.",
        ),
        savings=savings(step, low, high, "not measured here: a judgement from PyTorch's tuning guide"),
    )


def idle_gpus(case: Case) -> Finding | None:
    """GPUs that nobody uses beside the one that the job uses, unless somebody chose that one."""
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
