"""A last Linear of very many outputs that takes a large part of the step, and of the arithmetic."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity

from .case import Case
from .classes import head_and_targets, seen_targets
from .layer_table import about, last_linear

_APPROXIMATE = (0.3, 0.8)
"""A sampled or adaptive softmax computes 10 to 30 % of the outputs; the rest stays."""


def oversized_head(case: Case) -> Finding | None:
    """Where targets were seen that use its classes, it is as wide as it has to be: a note, not an alarm."""
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
