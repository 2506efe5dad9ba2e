"""nn.DataParallel, which drives several GPUs from one process."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, savings, severity
from perfdoctor.api.quantities import Missing

from .._shared.wording import in_words_of
from .case import Case

_DATA_PARALLEL_SAVES = (0.05, 0.3)
"""Replicating the model, scattering and gathering in one process; not measured here."""


def data_parallel(case: Case) -> Finding | None:
    """Whatever it costs: that was not measured."""
    host, step, limits = case.evidence.host, case.step, case.limits
    if isinstance(host, Missing) or not case.backend.data_parallel or len(host.gpus_in_use) < 2:
        return None
    low, high = (part * step.parts.compute for part in _DATA_PARALLEL_SAVES)
    return Finding(
        id="PD01.data-parallel",
        severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.LOW,
        message="nn.DataParallel drives {gpus:GPU} from the threads of one process",
        reasoning="it copies the model to every GPU in each step, and its threads share one interpreter lock",
        evidence=(Measurement("gpus", len(host.gpus_in_use), "count", "GPUs in use"), *case.used()),
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
