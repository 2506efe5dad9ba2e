"""Layers that are too large for what they do: one of them all, the head, or outputs that no target names."""

from __future__ import annotations

import math
import re
import statistics

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    present,
    savings,
    share,
)
from perfdoctor.api.quantities import IndexUse, Layer, Missing

from .case import Case, Limits, head_and_targets, seen_targets
from .layer_table import LESS, POOLED, about, last_linear, title


def oversized_layers(case: Case) -> tuple[Finding, ...]:
    """A leaf that takes most of the step, holds most of the model, and is far wider than the others: seldom two."""
    weighted = [layer for layer in case.profile.layers if layer.leaf and layer.width]
    return present(*(_oversized(case, layer, weighted) for layer in weighted))


def _oversized(case: Case, layer: Layer, weighted: list[Layer]) -> Finding | None:
    limits = case.limits
    others = [other.width for other in weighted if other is not layer]
    update = case.update_ms(layer)
    cost = Cost(case.step, layer.ms + update)
    if case.sure_share(cost.ms) < limits.flattened_share or not others or layer.kind.startswith("Embedding"):
        return None
    if _is_given(layer, weighted):
        return None
    held = layer.parameters / max(1, case.parameters)
    usual = statistics.median(others)
    if max(held, layer.flop_share) < limits.oversized_weight or layer.width < limits.oversized_width * usual:
        return None
    # The longer side of its weight is its input: outputs come first.
    flattened = layer.kind == "Linear" and layer.weight_shape[1] > layer.weight_shape[0]
    is_by_far = flattened and held >= limits.oversized_weight and layer.width >= limits.flattened_width * usual
    if not is_by_far and case.sure_share(cost.ms) < limits.oversized_share:
        return None
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
        location=location(layer.place),
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


def _is_given(layer: Layer, weighted: list[Layer]) -> bool:
    """Whether its width is the data's, at either end of the network, or a few of that side by side enter it."""
    first = min(weighted, key=lambda layer: layer.order)
    if first.kind.startswith("Embedding"):
        return False
    data = first.weight_shape[1]
    if len(first.weight_shape) == 2 and first.input_shape[-1:] == first.weight_shape[:1]:  # kept the other way round
        data = first.weight_shape[0]
    entering = layer.width == layer.weight_shape[1]
    return layer.width in {count * data for count in range(1, _SIDE_BY_SIDE + 1 if entering else 2)}


_SIDE_BY_SIDE = 4
"""Copies of the data's width that graph layers concatenate, at most: a node beside its neighbours."""
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
        location=location(last.place),
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


_LOSSES = (
    "_log_softmax",
    "_log_softmax_backward_data",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
)
"""What a cross-entropy over classes is made of; each does as much as there are classes, and none calls another."""
_PROPORTIONAL = (0.85, 1.1)
"""Product, softmax, loss and update all do as much as there are outputs. Narrow products run a little less well; on the
other hand memory that is not needed stays in nobody's way: of 67 ms found so, 71 were saved."""
_BRACKET = re.compile(r"\[([^\]]*)\]")
_MANY = 200
"""Targets that data sorted by class, with some of each, no longer fill with a few classes."""
_EULER = 0.5772
"""Euler's constant: the sum of 1 / rank up to n is log(n) and this."""


def unused_outputs(case: Case) -> Finding | None:
    """By the layer, the loss over its outputs, and the update of its weights."""
    used, step = head_and_targets(case), case.step
    if used is None:
        return None
    head, targets = used
    if targets.unused_share < case.limits.unused_outputs or not _is_telling(targets, case.limits):
        return None
    loss_ms, update_ms = _loss_ms(case, head.weight_shape[0]), case.update_ms(head)
    head_ms = head.ms + loss_ms + update_ms
    cost = Cost(step, head_ms * targets.unused_share)
    if case.sure_share(cost.ms) < case.limits.min_share:
        return None
    least, most = _PROPORTIONAL
    # What it saves elsewhere (memory, caches) is a part of what is elsewhere.
    low, high = least * cost.ms, cost.ms + (most - 1) * min(cost.ms, max(0.0, step.step_ms - cost.ms))
    return Finding(
        id="PD09.unused-outputs",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="no target uses the outputs of {layer} above class {highest}: {cost_ms} per step ({cost_share})",
        reasoning="the layer has {outputs:output}; the loss was given {targets:target} in the profiled steps, of "
        "{distinct:class}, none above {highest}; the layer, "
        "its loss and its update take {head_ms} per step, in proportion to the outputs",
        evidence=(
            Measurement("layer", title(head), "text"),
            Measurement("outputs", targets.size, "count", "outputs"),
            *seen_targets(targets),
            Measurement("targets", targets.count, "count", "targets seen"),
            *cost.measured("for outputs that no target uses"),
            milliseconds("head_ms", head_ms, "layer, loss and update"),
            milliseconds("layer_ms", head.ms, "forward and backward of the layer"),
            milliseconds("loss_ms", loss_ms, "loss over the outputs"),
            milliseconds("update_ms", update_ms, "optimizer, by the layer's share of the parameters"),
            share("unused", targets.unused_share, "of the outputs"),
        ),
        location=location(head.place),
        fix=Fix(
            text="Give the layer one output for each class that the data has.",
            code="classes = int(labels.max()) + 1  # over the whole data set\nself.head = nn.Linear(inputs, classes)",
            risk="Only the targets of a few steps were seen: count the classes of the whole data set before you narrow "
            "the layer.",
        ),
        savings=savings(
            step,
            low,
            high,
            "the measured layer, loss and update times the share of outputs that no target uses; 85 to 110 % of that",
        ),
    )


def _loss_ms(case: Case, classes: int) -> float:
    """Where layers are timed on a device, the operators' times are the host's: they do not say what the loss takes."""
    ops = case.evidence.ops
    if isinstance(ops, Missing) or case.profile.on_device:
        return 0.0
    of_classes = [op for op in ops.ops if op.name in _LOSSES and classes in _sizes_after_first(op.shapes)]
    return in_step(case.step, ops, sum(op.total_ms_per_step for op in of_classes))


def _sizes_after_first(shapes: str) -> set[int]:
    """`[64, 300] [64]` -> {300}: the first size is the samples'."""
    return {int(size) for found in _BRACKET.findall(shapes) for size in found.split(",")[1:]}


def _is_telling(targets: IndexUse, limits: Limits) -> bool:
    """Whether the highest of so many targets can be taken for the highest of all."""
    different = limits.unused_classes if targets.count >= _MANY else targets.count / 4
    if targets.count < limits.unused_targets or targets.distinct < different:
        return False
    # Words by Zipf's law, the first of the vocabulary the most frequent: sums of 1 / rank.
    within = (math.log(targets.highest + 1) + _EULER) / (math.log(targets.size) + _EULER)
    return targets.count * math.log(within) <= math.log(limits.unused_chance)
