"""Which kernels a step consists of that the device bounds, by a trace."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Severity,
    clear,
    found,
    milliseconds,
    share,
)
from perfdoctor.api.quantities import KernelUse, Missing

from .._shared.traced import Traced

_NAMED = 3
_UNFUSED = 0.3
"""Of the step, in kernels that could be fused: below, that is not what the step needs."""


def in_trace(case: Traced) -> Outcome:
    """What the device is busy with; a finding only where kernels that could be one take much of it."""
    activity = case.activity
    shared = (
        *case.measured(),
        milliseconds("products_ms", activity.products_ms, "products and convolutions, per step"),
        milliseconds("elementwise_ms", activity.elementwise_ms, "element-wise kernels, reductions, norms, per step"),
        *(_kernel(number, one) for number, one in enumerate(activity.kernels[:_NAMED], 1)),
        *_rate(case),
    )
    largest = "the largest kernels are " + ", ".join(
        f"{{kernel_{i}}}" for i in range(1, 1 + len(activity.kernels[:_NAMED]))
    )
    if not case.device_bound:
        return clear(f"the device has nothing to do for {{idle_share}} of the step; {largest}", *shared)
    others = case.worth(activity.elementwise_ms)
    if others is None or others.share < _UNFUSED:
        return clear(f"the device bounds the step, and products take {{products_ms}} of it; {largest}", *shared)
    finding = Finding(
        id="PD09.unfused-kernels",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="element-wise kernels, reductions and norms take {cost_ms} per step ({cost_share})",
        reasoning="each reads its tensors from memory and writes them back, which `torch.compile` does once for "
        f"several; {largest}",
        evidence=(*others.measured("in them, per step"), *shared),
        fix=Fix(
            text="Have element-wise operators and norms fused.",
            code="model = torch.compile(model)",
            risk="Compiling takes its time; results differ in their last digits.",
        ),
        savings=case.at_most(others.ms, "all of these kernels"),
    )
    return found(finding, measurements=shared)


def _kernel(number: int, one: KernelUse) -> Measurement:
    of = (f" of {one.operator}" if one.operator else "") + (f" in {one.layer}" if one.layer else "")
    return Measurement(
        f"kernel_{number}", f"{one.name}{of} ({one.ms:.3g} ms)", "text", f"largest kernel, number {number}"
    )


def _rate(case: Traced) -> tuple[Measurement, ...]:
    """How far the largest products are from what the device can do."""
    peaks = case.activity.peaks
    if isinstance(peaks, Missing):
        return ()
    known = [one for one in case.activity.kernels if one.flops > 0 and peaks.of(one.dtype) > 0]
    if not known:
        return ()
    least_ms = sum(one.flops / peaks.of(one.dtype) / 1e9 for one in known)
    return (
        share("of_peak", min(1.0, least_ms / sum(one.ms for one in known)), "of the device's peak rate, in products"),
    )
