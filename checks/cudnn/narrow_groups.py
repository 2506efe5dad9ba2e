"""Convolutions whose groups hold fewer channels than a CPU's vectors."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Evidence, Layer, Missing, OpProfile, Step

from .case import Limits

_WAY = "wide groups"
"""In which whole passes were made again."""
_NARROW = 8
"""Channels of a group, at which vectors are full."""


def narrow_groups(evidence: Evidence, step: Step, ops: OpProfile, limits: Limits) -> Finding | None:
    """By whole passes that were made again with several groups in one, and zeros between them; None where that saves
    little. An opportunity: how many groups there are is the model's own business."""
    saved = tried(step, ops, _WAY)
    dearest = _dearest(evidence)
    if saved is None or dearest is None or saved < limits.min_share * step.step_ms:
        return None
    cost = Cost(step, saved)
    groups = _groups(dearest)
    return Finding(
        id="PD02.narrow-groups",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="convolutions of {groups:group} of {channels:channel} take {cost_ms} per step longer than of wide "
        "ones ({cost_share})",
        reasoning="vectors hold 8 or 16 channels, and groups of so few have no kernel that fills them; the job's own "
        "passes were made again after its last step with several groups in one and weights of 0 between them, which "
        "makes the same numbers with more arithmetic, in less time",
        evidence=(
            *cost.measured("what the passes take longer than with groups of 16 channels"),
            Measurement("groups", groups, "count", "groups of the dearest of them"),
            Measurement("channels", _channels(dearest), "count", "channels that each of these makes"),
            Measurement("layer", dearest.name or dearest.kind, "text", "the dearest of them"),
        ),
        location=location(dearest.place),
        fix=Fix(
            text="Make fewer groups, of 8 or 16 channels; or no groups.",
            code="groups = max(1, channels // 16)  # not 32 groups of a few channels each\n"
            "conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups)",
            risk="Other groups are another model, and checkpoints do not fit it.",
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "the job's own passes, made again with groups of 16 channels that hold the same weights",
        ),
    )


def _dearest(evidence: Evidence) -> Layer | None:
    """Of the convolutions of images that have such groups, the one that takes most."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    narrow = [one for one in layers if one.leaf and one.kind == "Conv2d" and _is_narrow(one)]
    return max(narrow, key=lambda one: one.ms, default=None)


def _is_narrow(layer: Layer) -> bool:
    groups = _groups(layer)
    return groups > 1 and min(_channels(layer), layer.weight_shape[1]) < _NARROW and not _is_depthwise(layer)


def _groups(layer: Layer) -> int:
    if len(layer.weight_shape) != 4 or len(layer.input_shape) < 3:
        return 1
    return layer.input_shape[-3] // layer.weight_shape[1]


def _channels(layer: Layer) -> int:
    """That a group makes."""
    return layer.weight_shape[0] // _groups(layer)


def _is_depthwise(layer: Layer) -> bool:
    return layer.weight_shape[1] == _channels(layer) == 1
