"""Which layer makes an output for each class of a loss, and which classes the targets name."""

from __future__ import annotations

from perfdoctor.api.findings import Measurement
from perfdoctor.api.quantities import IndexUse, Layer, Missing

from .case import Case


def head_and_targets(case: Case) -> tuple[Layer, IndexUse] | None:
    """The `Linear` that has an output for each class of a loss, and the targets of that loss; the widest of them."""
    if isinstance(case.evidence.index_use, Missing):
        return None
    pairs = [
        (layer, use)
        for use in case.evidence.index_use
        for layer in case.profile.layers
        if use.kind == "target" and layer.kind == "Linear" and layer.weight_shape[:1] == (use.size,)
    ]
    return max(pairs, key=lambda pair: (pair[1].size, pair[0].order), default=None)


def seen_targets(targets: IndexUse) -> tuple[Measurement, ...]:
    """What was seen of the classes."""
    return (
        Measurement("highest", targets.highest, "count", "highest class among the targets"),
        Measurement("distinct", targets.distinct, "count", "different classes among the targets"),
    )
