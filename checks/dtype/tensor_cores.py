"""Tensor cores that a job leaves unused."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, milliseconds, severity

from .._shared.wording import in_words_of
from .case import Case

_FP32_TFLOPS = {(7, 0): 15.7, (7, 5): 8.1, (8, 0): 19.5, (8, 6): 29.8, (8, 9): 82.6, (9, 0): 67.0, (10, 0): 80.0}
"""Peak float32 rate without tensor cores, by compute capability, from NVIDIA's data sheets."""
_TENSOR_SAVES = (0.3, 0.7)
"""Share of float32 matrix time that TF32 or autocast saves: "3x end to end" at best, less when memory-bound."""


def tensor_cores_unused(case: Case) -> Finding | None:
    """By the float32 operations at the GPU's peak rate."""
    precision, step, capability = case.precision, case.step, case.precision.compute_capability
    if not case.evidence.on_cuda or capability is None or capability < (7, 0) or precision.tf32_matmul:
        return None
    rate = next((r for c, r in sorted(_FP32_TFLOPS.items(), reverse=True) if c <= capability), None)
    flops = case.ops.flops("float32")
    if rate is None or precision.autocast_dtype:
        return None
    cost = Cost(step, min(flops / (rate * 1e12) * 1e3, case.ops.device_busy_ms or step.step_ms, step.step_ms))
    if cost.share < case.limits.min_share:
        return None
    tf32 = capability >= (8, 0)
    return Finding(
        id="PD07.tensor-cores-unused",
        severity=severity(cost.share * _TENSOR_SAVES[1], case.limits.min_share, case.limits.error_share),
        confidence=Confidence.MEDIUM,
        message="float32 matrix arithmetic takes at least {cost_ms} per step and leaves the tensor cores unused",
        reasoning="neither autocast nor TF32 was on in the forward pass, and the device has compute capability "
        f"{capability[0]}.{capability[1]}",
        evidence=(
            milliseconds("cost_ms", cost.ms, "float32 matrix arithmetic per step at peak rate"),
            Measurement("flops", flops, "flops", "float32 operations per step"),
        ),
        fix=Fix(
            text="Use autocast" + (", or allow TF32 in matrix products." if tf32 else "."),
            code=in_words_of(
                case.evidence.job,
                "torch.set_float32_matmul_precision('high')  # TF32\n" * tf32
                + "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss = model(batch)",
                lightning="trainer = Trainer(..., precision='bf16-mixed')",
                transformers="TrainingArguments(..., bf16=True" + ", tf32=True" * tf32 + ")",
                accelerate="accelerator = Accelerator(mixed_precision='bf16')",
            ),
            risk="Products keep 10 (TF32) or 7 (bfloat16) bits of mantissa; sums stay in float32.",
            remedies=("dtype.tf32", "dtype.autocast"),
        ),
        savings=cost.savings(
            _TENSOR_SAVES,
            "float32 operations at the device's peak rate, a bound from below; tensor cores have a speed-up of 8x at "
            "most, 1.4x to 3x in practice",
        ),
    )
