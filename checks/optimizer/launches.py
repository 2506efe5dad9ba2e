"""An optimizer that launches kernels tensor by tensor, by a trace."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    milliseconds,
    share,
)

from .._shared.traced import Traced

_MANY = 50
"""Kernels per step: an update in groups has a dozen or two."""
_LISTED = 0.5
"""Of them for lists of tensors: an update in groups has a few others besides."""


def in_trace(case: Traced) -> Outcome:
    """By the time in which the device has nothing to do while the host is in the optimizer."""
    use = case.activity.optimizer
    if use is None:
        return cannot_tell("the trace marks no optimizer step; torch.profiler marks those of torch.optim by itself")
    cost = case.worth(use.idle_ms)
    shared = (
        Measurement("kernels", use.kernels, "count", "kernels of the optimizer per step"),
        Measurement("listed", use.listed, "count", "of which for many tensors at once"),
        milliseconds("update_ms", use.host_ms, "the host in the optimizer, per step"),
        share("update_share", use.host_ms / case.step.step_ms, "of the step"),
        milliseconds("idle_ms", use.idle_ms, "of which the device had nothing to do"),
    )
    if cost is None or use.kernels < _MANY or use.listed >= _LISTED * use.kernels:
        return clear(
            "the optimizer launches {kernels:kernel} per step, {listed} of them for many tensors at once; the host "
            "takes {update_ms} for it, in which the device has nothing to do for {idle_ms}",
            *shared,
        )
    finding = Finding(
        id="PD17.update-by-tensor",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="the optimizer launches kernels tensor by tensor, and the device idles for {cost_ms} per step "
        "({cost_share})",
        reasoning="{kernels:kernel} per step, of which {listed} for many tensors at once; the host takes {update_ms} "
        "to launch them, recording them included",
        evidence=(*cost.measured("idle while the host is in the optimizer, per step"), *shared),
        fix=Fix(
            text="Have the optimizer update all tensors in a few kernels.",
            code="optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)  # or foreach=True",
            risk="Sums are taken in another order, so the last digits of results differ.",
        ),
        savings=case.at_most(cost.ms, "the device's idle time while the host is in the optimizer"),
    )
    return found(finding, measurements=shared)
