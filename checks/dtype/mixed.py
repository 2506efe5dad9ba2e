"""Types that need not meet in one step: conversions back and forth, and a gradient scaler without float16."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import Missing

from .._shared.lines import asked_for
from .._shared.wording import in_words_of
from .case import Case


def conversions(case: Case) -> Finding | None:
    """At most one, for all lines together."""
    sites = case.evidence.call_sites
    if isinstance(sites, Missing):
        return None
    # Autocast converts by design: its own pair is its own business.
    autocast = {"float32", case.precision.autocast_dtype}
    lines = [call for call in sites if call.kind == "convert" and set(call.detail.split("->")) != autocast]
    directions = {call.detail for call in lines}
    lines = [call for call in lines if "->".join(reversed(call.detail.split("->"))) in directions]
    cost = Cost(case.step, sum(call.ms_per_step for call in lines))
    if cost.share < case.limits.min_share:
        return None
    worst = max(asked_for(case.evidence, lines), key=lambda call: call.ms_per_step)
    return Finding(
        id="PD07.conversions",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="converting types back and forth takes {cost_ms} per step ({cost_share})",
        reasoning="most of it by {conversion}, {calls:time} per step",
        evidence=(
            *cost.measured("conversions per step"),
            Measurement("conversion", worst.detail, "text", "the costliest conversion"),
            Measurement("calls", worst.calls_per_step, "count", "its calls per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Choose one type for the whole path and convert once, where data enters.",
            code="x = x.float()  # once; then no .double(), .half() or .to(dtype) on the way",
            risk="Rounding changes where a wider type was used on purpose.",
        ),
        savings=cost.savings((0.5, 0.95), "the measured time of the conversions"),
    )


def needless_grad_scaler(case: Case) -> Finding | None:
    """It keeps float16 gradients from vanishing; bfloat16 has float32's range. By the time of its operators."""
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
