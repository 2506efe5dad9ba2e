"""A model in training mode that no optimizer updates, through which the backward pass runs all the same."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .backward import without_graph
from .limits import Limits


def unused_gradients(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """By its part of the backward pass."""
    layers = evidence.layers
    if isinstance(layers, Missing) or step.boundary != "optimizer":
        return None
    backward = Cost(step, min(sum(layer.backward_ms for layer in layers.idle), step.parts.backward))
    forward = min(sum(layer.forward_ms for layer in layers.idle), step.parts.forward)
    low, high = without_graph(forward, backward.ms)
    if backward.ms <= 0 or high / step.step_ms < limits.min_share:
        return None
    roots = [layer for layer in layers.idle if layer.called_at is not None]
    model = min(roots or layers.idle, key=lambda layer: layer.order)
    return Finding(
        id="PD08.unused-gradients",
        severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="the backward pass spends {backward_ms} per step ({backward_share}) in a model without an optimizer",
        reasoning="{model}'s parameters require gradients and get them, its input requires none, and none of its "
        "parameters is in any optimizer",
        evidence=(
            milliseconds("backward_ms", backward.ms, "of the backward pass in it"),
            share("backward_share", backward.share, "of the step"),
            milliseconds("forward_ms", forward, "its forward pass"),
            Measurement("model", model.kind, "text", "the model"),
        ),
        location=location(model.called_at),
        fix=Fix(
            text="Call it without gradients; that also frees the memory of its activations.",
            code="with torch.no_grad():\n    targets = teacher(batch)",
            risk="None, unless its parameters are updated by hand or by an optimizer that is made later.",
        ),
        savings=savings(
            step,
            low,
            high,
            "its part of the backward pass, as measured by layer, and the 5 to 27 % of its forward pass that recording "
            "a graph takes",
        ),
    )
