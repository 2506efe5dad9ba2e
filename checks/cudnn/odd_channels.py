"""Convolutions of a few channels less than a CPU's vectors hold."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Evidence, Layer, Missing, OpProfile, Step

from .case import Limits

_WAY = "even channels"
"""In which whole passes were made again."""


def odd_channels(evidence: Evidence, step: Step, ops: OpProfile, limits: Limits) -> Finding | None:
    """By whole passes that were made again with channels of zeros beside those; None where that saves little. An
    opportunity: how many channels there are is the model's own business."""
    saved = tried(step, ops, _WAY)
    dearest = _dearest(evidence)
    if saved is None or dearest is None or saved < limits.min_share * step.step_ms:
        return None
    cost = Cost(step, saved)
    return Finding(
        id="PD02.odd-channels",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="convolutions make {channels:channel}, a few less than {even}: that costs {cost_ms} per step "
        "({cost_share})",
        reasoning="vectors hold 8 or 16 channels, and what is left of them is computed one by one; the job's own "
        "passes were made again after its last step with zeros in the channels that lack, which gives the same numbers",
        evidence=(
            *cost.measured("what the passes take longer than with a multiple of 16"),
            Measurement("channels", dearest.weight_shape[0], "count", "channels that the dearest of them makes"),
            Measurement("even", dearest.even_channels, "count", "the next multiple of 16"),
            Measurement("layer", dearest.name or dearest.kind, "text", "the dearest of them"),
        ),
        location=location(dearest.place),
        fix=Fix(
            text="Make all of them multiples of 16, or at least of 8, where a width is multiplied too.",
            code="channels = 16 * max(1, round(channels * width / 16))  # not int(channels * width)",
            risk="Another number of channels is another model, and checkpoints do not fit it.",
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "the job's own passes, made again with convolutions that make the next multiple of 16 channels",
        ),
    )


def _dearest(evidence: Evidence) -> Layer | None:
    """Of the convolutions that do so, the one that takes most."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    images = (one for one in layers if one.leaf and one.kind == "Conv2d")
    odd = [one for one in images if one.even_channels != one.weight_shape[0]]
    return max(odd, key=lambda layer: layer.ms, default=None)
