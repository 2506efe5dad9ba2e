"""One leaf that takes most of the step, holds most of the model, and is far wider than the others."""

from __future__ import annotations

import statistics

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, milliseconds, present, share
from perfdoctor.api.quantities import Layer

from .case import Case
from .layer_table import LESS, POOLED, about


def oversized_layers(case: Case) -> tuple[Finding, ...]:
    """Seldom more than one."""
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
