"""Convolutions along the height of images that are one number wide: a CPU's kernels work along the width."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, savings
from perfdoctor.api.quantities import Evidence, Layer, Missing, OpProfile, Step

from .case import Limits

_WAY = "long axis last"
"""In which whole passes were made again."""


def long_axis(evidence: Evidence, step: Step, ops: OpProfile, limits: Limits) -> Finding | None:
    """By whole passes that were made again with the two axes exchanged; None where that saves little."""
    saved = tried(step, ops, _WAY)
    dearest = _dearest(evidence)
    if saved is None or dearest is None or saved < limits.min_share * step.step_ms:
        return None
    cost = Cost(step, saved)
    return Finding(
        id="PD02.long-axis-first",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="convolutions run along the height of images 1 wide, which costs {cost_ms} per step ({cost_share})",
        reasoning="{layer} has a kernel of {kernel}; the job's own passes were made again after its last step with "
        "height and width exchanged in such convolutions, which makes the same numbers",
        evidence=(
            *cost.measured("what the passes take longer than along the width"),
            Measurement("layer", dearest.name or dearest.kind, "text", "the dearest of them"),
            Measurement("kernel", " x ".join(map(str, dearest.weight_shape[2:])), "text", "its kernel"),
        ),
        location=location(dearest.place),
        fix=Fix(
            text="Let the long axis be the last one, or use `nn.Conv1d`.",
            code="x = x.unsqueeze(2)  # N x C x 1 x time, in place of x.unsqueeze(-1)\n"
            "nn.Conv2d(channels, channels, (1, k), stride=(1, s), padding=(0, k // 2))",
            risk="Checkpoints hold kernels of the other shape: transpose them (`weight.transpose(2, 3)`).",
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "the job's own passes, made again with height and width exchanged in these convolutions",
        ),
    )


def _dearest(evidence: Evidence) -> Layer | None:
    """Of the layers that do so, the one that takes most."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    upright = [layer for layer in layers if layer.leaf and layer.kind == "Conv2d" and _is_upright(layer)]
    return max(upright, key=lambda layer: layer.ms, default=None)


def _is_upright(layer: Layer) -> bool:
    images, weight = layer.input_shape, layer.weight_shape
    return len(images) == len(weight) == 4 and images[3] == weight[3] == 1 < min(images[2], weight[2])
