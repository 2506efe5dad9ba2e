"""Products outside tensor cores, by a trace."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Outcome, clear, found, milliseconds
from perfdoctor.api.quantities import Missing, Peaks

from .._shared.traced import Traced


def in_trace(case: Traced) -> Outcome:
    """float32 products of a step that the device bounds, by the device's peak rates in other types."""
    activity = case.activity
    by_type = {one.dtype: one.ms for one in activity.products}
    shared = (
        *(
            milliseconds(f"{dtype or 'untyped'}_ms", ms, f"products in {dtype or 'a type not known'}, per step")
            for dtype, ms in by_type.items()
        ),
        *case.measured(),
    )
    full = min(by_type.get("float32", 0.0), activity.products_ms)
    cost = case.worth(full)
    if not by_type or cost is None:
        return clear("no product computes in float32 for a time worth a change", *shared)
    if not case.device_bound:
        return clear(
            "products in float32 take {float32_ms} per step, but the device has nothing to do for {idle_share} of it: "
            "faster ones would leave it idle for longer",
            *shared,
        )
    peaks = activity.peaks
    if isinstance(peaks, Missing):
        return clear(
            f"products in float32 take {{float32_ms}} per step; what others would save is not known: {peaks}", *shared
        )
    return found(_unused(case, cost, peaks, shared), measurements=shared)


def _unused(case: Traced, cost: Cost, peaks: Peaks, shared: tuple[Measurement, ...]) -> Finding:
    dtype, rate = ("tf32", peaks.tf32) if peaks.tf32 > peaks.float32 else ("float16", peaks.half)
    saved = cost.ms * (1 - peaks.float32 / rate)
    return Finding(
        id="PD07.tensor-cores-unused",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="products in float32, outside tensor cores, take {cost_ms} per step ({cost_share})",
        reasoning="the device bounds the step, and multiplies {rate} times 10^12 times per second in {dtype} against "
        "{float32_rate} in float32",
        evidence=(
            *cost.measured("products in float32, per step"),
            Measurement("dtype", dtype, "text", "type on tensor cores"),
            Measurement("rate", rate, "count", "10^12 operations per second in it at most"),
            Measurement("float32_rate", peaks.float32, "count", "10^12 operations per second in float32 at most"),
            *shared,
        ),
        fix=Fix(
            text="Let products use tensor cores: TF32 for float32 tensors, or autocast.",
            code='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True'
            if dtype == "tf32"
            else 'with torch.autocast("cuda", dtype=torch.float16):\n    loss = loss_of(model(batch))',
            risk="Products are rounded to fewer digits." + ("" if dtype == "tf32" else " float16 needs a GradScaler."),
        ),
        savings=case.at_most(saved, "these products at the ratio of the device's peak rates"),
    )
