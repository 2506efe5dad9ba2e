"""Embedding tables with a `max_norm`: each row that is looked up is scaled by itself, in a loop of torch's."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings, share
from perfdoctor.api.quantities import Missing

from .case import Case
from .layer_table import title

_OPERATOR = "embedding_renorm_"
_SAVED = (0.6, 0.98)
"""Of what it takes: all rows of a table are scaled at once in 1 ms for each million of numbers, and less often."""


def renormalized_embedding(case: Case) -> Finding | None:
    """By the operator that scales rows, with all that it calls: a norm for each of them."""
    step, ops = case.step, case.evidence.ops
    if isinstance(ops, Missing):
        return None
    found = [op for op in ops.ops if op.name == _OPERATOR]
    cost = Cost(step, in_step(step, ops, sum(op.total_ms_per_step for op in found)))
    if case.sure_share(cost.ms) < case.limits.min_share:
        return None
    tables = [layer for layer in case.profile.layers if layer.kind.startswith("Embedding")]
    largest = max(tables, key=lambda layer: layer.ms, default=None)
    return Finding(
        id="PD09.renormalized-embedding",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="`max_norm` has rows of an embedding table scaled one by one: {renorm_ms} per step ({renorm_share})",
        reasoning="each lookup, of {calls} per step, takes the norm of every row that it is going to give, one by one, "
        "on one thread",
        evidence=(
            Measurement("layer", "the table" if largest is None else title(largest), "text"),
            milliseconds("renorm_ms", cost.ms, "scaling rows, per step"),
            share("renorm_share", cost.share, "of the step"),
            Measurement("calls", round(sum(op.calls_per_step for op in found)), "count", "lookups with it per step"),
        ),
        location=location(None if largest is None else largest.place),
        fix=Fix(
            text="Scale all rows at once, after the optimizer's step; every few steps will do for large tables.",
            code="with torch.no_grad():\n    table.weight.copy_(torch.renorm(table.weight, 2, 0, 1.0))  # no max_norm=",
            risk="Rows that no batch looks up are scaled too.",
        ),
        savings=savings(
            step,
            _SAVED[0] * cost.ms,
            _SAVED[1] * cost.ms,
            "the operator that scales rows, by its part of the profiled step",
            ceiling=cost.ms,
        ),
    )
