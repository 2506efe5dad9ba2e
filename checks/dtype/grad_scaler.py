"""A gradient scaler, which keeps float16 gradients from vanishing, in a job that has none: bfloat16 has float32's
range."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, location

from .._shared.wording import in_words_of
from .case import Case


def needless_grad_scaler(case: Case) -> Finding | None:
    """By the time of its operators."""
    ops, precision = case.ops, case.precision
    if not precision.grad_scaler or ops.self_ms("float16") > 0 or precision.autocast_dtype == "float16":
        return None
    scaling = [op for op in ops.ops if op.name.startswith("_amp_")]
    cost = Cost(case.step, in_step(case.step, ops, sum(op.total_ms_per_step for op in scaling)))
    if cost.share < case.limits.scaler_min_share:
        return None
    return Finding(
        id="PD07.needless-grad-scaler",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="GradScaler takes {cost_ms} per step ({cost_share}) although nothing is computed in float16",
        reasoning="it rescales gradients and checks them for overflow, with a sync per optimizer step; bfloat16 and "
        "float32 do not overflow",
        evidence=cost.measured("rescaling per step"),
        location=location(precision.grad_scaler_site),
        fix=Fix(
            text="Remove the scaler, or switch it off.",
            code=in_words_of(
                case.evidence.job,
                "scaler = torch.amp.GradScaler(enabled=False)",
                lightning="trainer = Trainer(..., precision='bf16-mixed')  # instead of 16-mixed",
                transformers="TrainingArguments(..., bf16=True, fp16=False)",
                accelerate="accelerator = Accelerator(mixed_precision='bf16')  # instead of fp16",
            ),
        ),
        savings=cost.savings((0.8, 1.0), "the measured time of its operators"),
    )
