"""Kernels that only change the memory layout, by a trace."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Outcome, clear, found, milliseconds, share

from .._shared.traced import Traced


def in_trace(case: Traced) -> Outcome:
    """Their time counts where the device bounds the step."""
    activity = case.activity
    kernels = max(activity.computing_ms, 1e-9)
    shared = (
        milliseconds("layouts_ms", activity.layouts_ms, "kernels that only change the memory layout, per step"),
        share("of_kernels", min(1.0, activity.layouts_ms / kernels), "of the kernels' time"),
        *case.measured(),
    )
    cost = case.worth(activity.layouts_ms)
    if cost is None or not case.device_bound:
        why = "" if case.device_bound else ", in a step in which the device has nothing to do for {idle_share}"
        return clear("kernels that only change the memory layout take {layouts_ms} per step" + why, *shared)
    finding = Finding(
        id="PD02.layout-kernels",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="kernels that only change the memory layout take {cost_ms} per step ({cost_share})",
        reasoning="convolutions run in another layout than their inputs have, so that each transposes them; that is "
        "{of_kernels} of the kernels' time",
        evidence=(*cost.measured("layout kernels per step"), *shared),
        fix=Fix(
            text="Keep model and images in channels-last, so that convolutions find the layout that they run in.",
            code="model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)",
            risk="Layers without a channels-last kernel convert back; measure it.",
        ),
        savings=case.at_most(cost.ms, "the time of the layout kernels, beside which nothing is sent"),
    )
    return found(finding, measurements=shared)
