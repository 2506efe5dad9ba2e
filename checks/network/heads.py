"""The last layer: outputs that no target uses, and heads that take the step although all are used."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Protocol

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, IndexUse, Layer, LayerProfile, Missing, OpProfile, Step

from .._shared.layer_table import about, cost_share, last_linear, sure_share, title, update_ms
from .._shared.limits import CostLimits

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
_APPROXIMATE = (0.3, 0.8)
"""A sampled or adaptive softmax computes 10 to 30 % of the outputs; the rest stays."""
_BRACKET = re.compile(r"\[([^\]]*)\]")
_MANY = 200
"""Targets that data sorted by class, with some of each, no longer fill with a few classes."""
_EULER = 0.5772
"""Euler's constant: the sum of 1 / rank up to n is log(n) and this."""


class Limits(CostLimits, Protocol):
    """The check's thresholds that matter here."""

    @property
    def unused_outputs(self) -> float: ...
    @property
    def unused_targets(self) -> int: ...
    @property
    def unused_chance(self) -> float: ...
    @property
    def unused_classes(self) -> int: ...
    @property
    def head_outputs(self) -> int: ...
    @property
    def head_share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class _Head:
    """A head and what hangs on its outputs, milliseconds of an ordinary step."""

    layer: Layer
    loss_ms: float
    update_ms: float

    @property
    def ms(self) -> float:
        return self.layer.ms + self.loss_ms + self.update_ms


def findings(evidence: Evidence, step: Step, profile: LayerProfile, parameters: int, limits: Limits) -> list[Finding]:
    """At most one."""
    used = _used(evidence, profile)
    if used is not None:
        layer, targets = used
        head = _head(evidence.ops, step, layer, profile, parameters)
        finding = _unused(step, head, targets, profile, limits)
        if finding is not None:
            return [finding]
    return _dominant(step, profile, None if used is None else used[1], limits)


def _used(evidence: Evidence, profile: LayerProfile) -> tuple[Layer, IndexUse] | None:
    """The `Linear` that has an output for each class of a loss, and the targets of that loss; the widest of them."""
    if isinstance(evidence.index_use, Missing):
        return None
    pairs = [
        (layer, use)
        for use in evidence.index_use
        for layer in profile.layers
        if use.kind == "target" and layer.kind == "Linear" and layer.weight_shape[:1] == (use.size,)
    ]
    return max(pairs, key=lambda pair: (pair[1].size, pair[0].order), default=None)


def _head(ops: OpProfile | Missing, step: Step, layer: Layer, profile: LayerProfile, parameters: int) -> _Head:
    # Where layers are timed on a device, the operators' times are the host's: they do not say what the loss takes.
    loss = 0.0 if isinstance(ops, Missing) or profile.on_device else _loss_ms(ops, step, layer.weight_shape[0])
    return _Head(layer, loss, update_ms(step, layer, parameters))


def _loss_ms(ops: OpProfile, step: Step, classes: int) -> float:
    of_classes = [op for op in ops.ops if op.name in _LOSSES and classes in _sizes_after_first(op.shapes)]
    return in_step(step, ops, sum(op.total_ms_per_step for op in of_classes))


def _sizes_after_first(shapes: str) -> set[int]:
    """`[64, 300] [64]` -> {300}: the first size is the samples'."""
    return {int(size) for found in _BRACKET.findall(shapes) for size in found.split(",")[1:]}


def _unused(step: Step, head: _Head, targets: IndexUse, profile: LayerProfile, limits: Limits) -> Finding | None:
    """Outputs beyond the highest class that any target named."""
    if targets.unused_share < limits.unused_outputs:
        return None
    if not _is_telling(targets, limits):
        return None
    cost = head.ms * targets.unused_share
    if sure_share(step, profile, cost) < limits.min_share:
        return None
    cost_of_step = cost_share(step, cost)
    least, most = _PROPORTIONAL
    # What it saves elsewhere (memory, caches) is a part of what is elsewhere.
    low, high = least * cost, cost + (most - 1) * min(cost, max(0.0, step.step_ms - cost))
    return Finding(
        id="PD09.unused-outputs",
        severity=severity(cost_of_step, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="the layer {layer} has {outputs:output}, but the targets stop at class {highest}: the outputs beyond "
        "it cost {cost_ms} a step, {cost_share}",
        reasoning="the loss was given {targets:target} in the profiled steps, {distinct:class} of which none was "
        "higher; the layer, its loss and its update take {head_ms} a step, as much as there are outputs",
        evidence=(
            Measurement("layer", title(head.layer), "text"),
            Measurement("outputs", targets.size, "count", "outputs"),
            Measurement("highest", targets.highest, "count", "highest class among the targets"),
            Measurement("distinct", targets.distinct, "count", "different classes among the targets"),
            Measurement("targets", targets.count, "count", "targets seen"),
            milliseconds("cost_ms", cost, "for outputs that no target uses"),
            share("cost_share", cost_of_step, "of the step"),
            milliseconds("head_ms", head.ms, "layer, loss and update"),
            milliseconds("layer_ms", head.layer.ms, "forward and backward of the layer"),
            milliseconds("loss_ms", head.loss_ms, "loss over the outputs"),
            milliseconds("update_ms", head.update_ms, "optimizer, by the layer's share of the parameters"),
            share("unused", targets.unused_share, "of the outputs"),
        ),
        fix=Fix(
            text="Give the layer one output for each class that the data has.",
            code="classes = int(labels.max()) + 1  # over the whole data set\nself.head = nn.Linear(inputs, classes)",
            risk="Only the targets of a few steps were seen: count the classes of the whole data set before you narrow "
            "the layer.",
        ),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=high,
            low=low,
            high=high,
            method="the measured layer, loss and update times the share of outputs that no target uses; 85 to 110 % "
            "of that",
        ),
    )


def _is_telling(targets: IndexUse, limits: Limits) -> bool:
    """Whether the highest of so many targets can be taken for the highest of all."""
    different = limits.unused_classes if targets.count >= _MANY else targets.count / 4
    if targets.count < limits.unused_targets or targets.distinct < different:
        return False
    # Words by Zipf's law, the first of the vocabulary the most frequent: sums of 1 / rank.
    within = (math.log(targets.highest + 1) + _EULER) / (math.log(targets.size) + _EULER)
    return targets.count * math.log(within) <= math.log(limits.unused_chance)


def _dominant(step: Step, profile: LayerProfile, targets: IndexUse | None, limits: Limits) -> list[Finding]:
    """A last Linear of very many outputs that takes a large part of the step, and of the arithmetic.

    Where targets were seen that use its classes, it is as wide as it has to be: a note, not an alarm.
    """
    last = last_linear(profile)
    if last is None or last.weight_shape[0] < limits.head_outputs:
        return []
    if sure_share(step, profile, last.ms) < limits.head_share or last.flop_share < limits.head_share:
        return []
    cost_of_step = cost_share(step, last.ms)
    needed = targets is not None and targets.size == last.weight_shape[0]
    low, high = (fraction * last.ms for fraction in _APPROXIMATE)
    seen = (
        ()
        if targets is None or not needed
        else (
            Measurement("highest", targets.highest, "count", "highest class among the targets"),
            Measurement("distinct", targets.distinct, "count", "different classes among the targets"),
        )
    )
    return [
        Finding(
            id="PD09.oversized-head",
            severity=Severity.NOTE if needed else severity(cost_of_step, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="the last layer, {layer}, has {outputs:output} and takes {cost_ms} a step, {cost_share}",
            reasoning="it does {flop_share} of the arithmetic, and its result, one number per output and sample, "
            "is made again by the loss"
            + ("; the targets use its classes, so it is not wider than it has to be" if needed else ""),
            evidence=(
                *about(last, step),
                Measurement("outputs", last.weight_shape[0], "count", "outputs"),
                *seen,
            ),
            fix=Fix(
                text="Do not compute all outputs in training: an adaptive or sampled softmax, fewer classes, or "
                "on a GPU a cross-entropy that is fused with the layer.",
                code="loss = nn.AdaptiveLogSoftmaxWithLoss(hidden, classes, cutoffs=[2000, 10_000])\n"
                "output = loss(features, labels)",
                risk="An approximate softmax learns differently; compare the validation loss.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=last.ms,
                low=low,
                high=high,
                method="the measured time of the layer; an approximate softmax computes 10 to 30 % of the outputs",
            ),
        )
    ]
