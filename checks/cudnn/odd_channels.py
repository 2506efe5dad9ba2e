"""Convolutions of a few channels more or less than a CPU's vectors hold."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Evidence, Layer, Missing, OpProfile, Step

from .case import Limits

_WAY = "even channels"
"""In which whole passes were made again."""


def odd_channels(evidence: Evidence, step: Step, ops: OpProfile, limits: Limits) -> Finding | None:
    """By whole passes that were made again with as many as vectors hold; None where that saves little beside what fewer
    channels save anyway. An opportunity: how many channels there are is the model's own business."""
    saved = tried(step, ops, _WAY)
    odd = _odd(evidence)
    if saved is None or not odd or saved - sum(map(_less_ms, odd)) < limits.min_share * step.step_ms:
        return None
    dearest = max(odd, key=lambda layer: layer.ms)
    cost = Cost(step, saved)
    return Finding(
        id="PD02.odd-channels",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="convolutions make {channels:channel}, where {even} would take less: {cost_ms} per step ({cost_share})",
        reasoning="vectors hold 8 or 16 channels; what is left of them is computed one by one, or takes as long as a "
        "whole vector; the job's own passes were made again after its last step with the nearest multiple of 16, with "
        "zeros in channels that lack and without the last where there are too many",
        evidence=(
            *cost.measured("what the passes take longer than with a multiple of 16"),
            Measurement("channels", dearest.weight_shape[0], "count", "channels that the dearest of them makes"),
            Measurement("even", dearest.even_channels, "count", "the nearest multiple of 16"),
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
            "the job's own passes, made again with convolutions that make the nearest multiple of 16 channels",
        ),
    )


def _odd(evidence: Evidence) -> list[Layer]:
    """The convolutions of images that do so."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    images = (one for one in layers if one.leaf and one.kind == "Conv2d")
    return [one for one in images if one.even_channels != one.weight_shape[0]]


def _less_ms(layer: Layer) -> float:
    """What any layer saves that makes, and is given, so few channels less."""
    return (1 - layer.even_part) * layer.ms
