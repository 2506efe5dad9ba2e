"""Outputs of a head beyond the highest class that any target named."""

from __future__ import annotations

import math
import re

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, milliseconds, savings, share
from perfdoctor.api.quantities import IndexUse, Missing

from .case import Case, Limits, head_and_targets, seen_targets
from .layer_table import title

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
