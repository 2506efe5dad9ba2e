"""Mixed precision: tensor cores that a job leaves unused, and a gradient scaler that does nothing for it."""

from __future__ import annotations

from typing import Protocol

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, OpProfile, Precision, Step

from .._shared.limits import CostLimits
from .._shared.wording import in_words_of

_FP32_TFLOPS = {(7, 0): 15.7, (7, 5): 8.1, (8, 0): 19.5, (8, 6): 29.8, (8, 9): 82.6, (9, 0): 67.0, (10, 0): 80.0}
"""Peak float32 rate without tensor cores, by compute capability, from NVIDIA's data sheets."""
_TENSOR_SAVES = (0.3, 0.7)
"""Share of float32 matrix time that TF32 or autocast saves: "3x end to end" at best, less when memory-bound."""


class Limits(CostLimits, Protocol):
    """The check's thresholds that matter here."""

    @property
    def scaler_min_share(self) -> float: ...


def findings(evidence: Evidence, step: Step, ops: OpProfile, precision: Precision, limits: Limits) -> list[Finding]:
    """At most one of each."""
    return [
        *_unused_tensor_cores(evidence, step, ops, precision, limits),
        *_useless_scaler(evidence, step, ops, precision, limits),
    ]


def _unused_tensor_cores(
    evidence: Evidence, step: Step, ops: OpProfile, precision: Precision, limits: Limits
) -> list[Finding]:
    capability = precision.compute_capability
    if not evidence.on_cuda or capability is None or capability < (7, 0) or precision.tf32_matmul:
        return []
    rate = next((r for c, r in sorted(_FP32_TFLOPS.items(), reverse=True) if c <= capability), None)
    flops = ops.flops("float32")
    if rate is None or precision.autocast_dtype:
        return []
    cost = min(flops / (rate * 1e12) * 1e3, ops.device_busy_ms or step.step_ms, step.step_ms)
    cost_share = cost / step.step_ms
    if cost_share < limits.min_share:
        return []
    low, high = _TENSOR_SAVES
    tf32 = capability >= (8, 0)
    return [
        Finding(
            id="PD07.tensor-cores-unused",
            severity=severity(cost_share * high, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="the matrix arithmetic of a step takes at least {cost_ms} in float32, which the GPU's tensor "
            "cores do not do",
            reasoning="neither autocast nor TF32 was on in the forward pass, and the device has compute capability "
            f"{capability[0]}.{capability[1]}",
            evidence=(
                milliseconds("cost_ms", cost, "float32 matrix arithmetic per step at peak rate"),
                Measurement("flops", flops, "flops", "float32 operations per step"),
            ),
            fix=Fix(
                text="Use autocast" + (", or allow TF32 in matrix products." if tf32 else "."),
                code=in_words_of(
                    evidence.job,
                    "torch.set_float32_matmul_precision('high')  # TF32\n" * tf32
                    + "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss = model(batch)",
                    lightning="trainer = Trainer(..., precision='bf16-mixed')",
                    transformers="TrainingArguments(..., bf16=True" + ", tf32=True" * tf32 + ")",
                    accelerate="accelerator = Accelerator(mixed_precision='bf16')",
                ),
                risk="Products keep 10 (TF32) or 7 (bfloat16) bits of mantissa; sums stay in float32.",
                remedies=("dtype.tf32", "dtype.autocast"),
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=low * cost,
                high=high * cost,
                method="float32 operations at the device's peak rate, a bound from below; tensor cores are up to 8 "
                "times faster, 1.4 to 3 times in practice",
            ),
        )
    ]


def _useless_scaler(
    evidence: Evidence, step: Step, ops: OpProfile, precision: Precision, limits: Limits
) -> list[Finding]:
    """A gradient scaler keeps float16 gradients from vanishing; bfloat16 has float32's range."""
    if not precision.grad_scaler or ops.self_ms("float16") > 0 or precision.autocast_dtype == "float16":
        return []
    scaling = [op for op in ops.ops if op.name.startswith("_amp_")]
    cost = in_step(step, ops, sum(op.total_ms_per_step for op in scaling))
    cost_share = cost / step.step_ms
    if cost_share < limits.scaler_min_share:
        return []
    return [
        Finding(
            id="PD07.needless-grad-scaler",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.HIGH,
            message="a GradScaler takes {cost_ms} a step although nothing is computed in float16",
            reasoning="it rescales gradients and checks them for overflow, with a sync per optimizer step; bfloat16 "
            "and float32 do not overflow",
            evidence=(
                milliseconds("cost_ms", cost, "rescaling per step"),
                share("cost_share", cost_share, "of the step"),
            ),
            location=location(precision.grad_scaler_site),
            fix=Fix(
                text="Remove the scaler, or switch it off.",
                code=in_words_of(
                    evidence.job,
                    "scaler = torch.amp.GradScaler(enabled=False)",
                    lightning="trainer = Trainer(..., precision='bf16-mixed')  # instead of 16-mixed",
                    transformers="TrainingArguments(..., bf16=True, fp16=False)",
                    accelerate="accelerator = Accelerator(mixed_precision='bf16')  # instead of fp16",
                ),
            ),
            savings=savings(
                step, Part.COMPUTE, ceiling=cost, low=0.8 * cost, high=cost, method="the measured time of its operators"
            ),
        )
    ]
