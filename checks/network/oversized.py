"""Layers that are too large for what they do: one of them all, or the head."""

from __future__ import annotations

import statistics

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, milliseconds, present, share
from perfdoctor.api.quantities import Layer

from .case import Case, head_and_targets, seen_targets
from .layer_table import LESS, POOLED, about, last_linear


def oversized_layers(case: Case) -> tuple[Finding, ...]:
    """A leaf that takes most of the step, holds most of the model, and is far wider than the others: seldom two."""
    weighted = [layer for layer in case.profile.layers if layer.leaf and layer.width]
    return present(*(_oversized(case, layer, weighted) for layer in weighted))


def _oversized(case: Case, layer: Layer, weighted: list[Layer]) -> Finding | None:
    limits = case.limits
    others = [other.width for other in weighted if other is not layer]
    update = case.update_ms(layer)
    cost = Cost(case.step, layer.ms + update)
    if case.sure_share(cost.ms) < limits.oversized_share or not others or layer.kind.startswith("Embedding"):
        return None
    held = layer.parameters / max(1, case.parameters)
    usual = statistics.median(others)
    if max(held, layer.flop_share) < limits.oversized_weight or layer.width < limits.oversized_width * usual:
        return None
    # The longer side of its weight is its input: outputs come first.
    flattened = layer.kind == "Linear" and layer.weight_shape[1] > layer.weight_shape[0]
    return Finding(
        id="PD09.oversized-layer",
        severity=Severity.WARNING if cost.share >= limits.oversized_warning else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="one layer, {layer}, takes {cost_ms} per step ({cost_share})",
        reasoning="it holds {held} of the parameters, does {flop_share} of the arithmetic, and is {width} wide, where "
        "the median of the other layers is {usual}",
        evidence=(
            *about(layer, case.step),
            milliseconds("update_ms", update, "optimizer, by the layer's share of the parameters"),
            share("held", held, "of the parameters"),
            Measurement("width", layer.width, "count", "its longer side"),
            Measurement("usual", usual, "count", "longer side of the other layers, median"),
        ),
        fix=Fix(
            text="Shrink what enters the layer (pool before flattening) or its width, step by step, as long as the "
            "validation loss keeps up.",
            code="features = nn.Sequential(convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten())",
            risk="A narrower layer may learn less: compare the validation loss.",
        ),
        savings=cost.savings(
            POOLED if flattened else LESS,
            "the layer's time and its share of the update fall with its "
            + ("input: pooling by two saves 75 %" if flattened else "width: half of it saves 50 %")
            + ", to a few values nearly all",
        ),
    )


_APPROXIMATE = (0.3, 0.8)
"""A sampled or adaptive softmax computes 10 to 30 % of the outputs; the rest stays."""


def oversized_head(case: Case) -> Finding | None:
    """A last Linear of very many outputs that takes a large part of the step, and of the arithmetic.

    Where targets were seen that use its classes, it is as wide as it has to be: a note, not an alarm.
    """
    last, used, limits = last_linear(case.profile), head_and_targets(case), case.limits
    if last is None or last.weight_shape[0] < limits.head_outputs:
        return None
    if case.sure_share(last.ms) < limits.head_share or last.flop_share < limits.head_share:
        return None
    cost = Cost(case.step, last.ms)
    targets = used[1] if used is not None and used[1].size == last.weight_shape[0] else None
    return Finding(
        id="PD09.oversized-head",
        severity=case.severity(cost) if targets is None else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="the last layer, {layer}, has {outputs:output}: {cost_ms} per step ({cost_share})",
        reasoning="it does {flop_share} of the arithmetic, and its result, one number per output and sample, is made "
        "again by the loss"
        + ("" if targets is None else "; the targets use its classes, so it is not wider than it has to be"),
        evidence=(
            *about(last, case.step),
            Measurement("outputs", last.weight_shape[0], "count", "outputs"),
            *(() if targets is None else seen_targets(targets)),
        ),
        fix=Fix(
            text="Do not compute all outputs in training: use an adaptive or sampled softmax, fewer classes, or on a "
            "GPU a cross-entropy that is fused with the layer.",
            code="loss = nn.AdaptiveLogSoftmaxWithLoss(hidden, classes, cutoffs=[2000, 10_000])\n"
            "output = loss(features, labels)",
            risk="An approximate softmax learns differently; compare the validation loss.",
        ),
        savings=cost.savings(
            _APPROXIMATE, "the measured time of the layer; an approximate softmax computes 10 to 30 % of the outputs"
        ),
    )
