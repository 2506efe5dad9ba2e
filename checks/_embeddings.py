"""Embedding tables whose gradient is as large as they are, however few rows a batch touches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from perfdoctor.api import (
    Confidence,
    Evidence,
    Finding,
    Fix,
    Layer,
    LayerProfile,
    Measurement,
    Missing,
    Part,
    Step,
    in_step,
    milliseconds,
    savings,
    severity,
    share,
)

from ._layer_table import cost_share, sure_share, title, update_ms
from ._limits import CostLimits

_GRADIENT = "embedding_dense_backward"
_SPARSE_SAVES = (0.7, 1.0)
"""Only the rows of a batch are touched; sorting and hashing them costs something again. A program won back all of it,
and more: memory that is not needed stays in nobody's way."""


class Limits(CostLimits, Protocol):
    """The check's thresholds that matter here."""

    @property
    def table_touched(self) -> float: ...


@dataclass(frozen=True, slots=True)
class _Table:
    """A table and what its dense gradient costs, milliseconds of an ordinary step."""

    layer: Layer
    gradient_ms: float
    update_ms: float
    """Of the optimizer, by the table's share of the parameters."""
    touched: float
    """Rows that a step uses, at most."""

    @property
    def ms(self) -> float:
        return self.gradient_ms + self.update_ms


def findings(evidence: Evidence, step: Step, profile: LayerProfile, parameters: int, limits: Limits) -> list[Finding]:
    """Tables whose dense gradients, and the optimizer's pass over them, cost time that few rows need."""
    ops = evidence.ops
    tables = [layer for layer in profile.layers if layer.kind.startswith("Embedding") and layer.weight_shape]
    if isinstance(ops, Missing) or not tables or not parameters:
        return []
    gradient = in_step(step, ops, sum(op.total_ms_per_step for op in ops.ops if op.name == _GRADIENT))
    every = sum(table.parameters for table in tables)
    costs = []
    for table in tables:
        made = gradient * table.parameters / max(1, every)
        costs.append(_Table(table, made, update_ms(step, table, parameters), _touched(evidence, table)))
    return [finding for cost in costs if (finding := _dense(step, profile, cost, limits)) is not None]


def _dense(step: Step, profile: LayerProfile, table: _Table, limits: Limits) -> Finding | None:
    rows, cost = table.layer.weight_shape[0], table.ms
    if not table.gradient_ms or table.touched > limits.table_touched * rows:
        return None
    if sure_share(step, profile, cost) < limits.min_share:
        return None
    low, high = (fraction * cost for fraction in _SPARSE_SAVES)
    return Finding(
        id="PD09.dense-embedding-gradient",
        severity=severity(cost_share(step, cost), limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="the gradient of {layer} fills the whole table for the few rows of a batch: {dense_ms} a step "
        "with the optimizer's pass over it, {dense_share}",
        reasoning="a batch touches at most {touched} of {rows:row}, and the gradient and the update are as large "
        "as the table",
        evidence=(
            Measurement("layer", title(table.layer), "text"),
            milliseconds("dense_ms", cost, "gradient and update per step"),
            share("dense_share", cost_share(step, cost), "of the step"),
            milliseconds("gradient_ms", table.gradient_ms, "making the dense gradient"),
            milliseconds("update_ms", table.update_ms, "optimizer, by the table's share of the parameters"),
            Measurement("touched", round(table.touched), "count", "rows looked up per step"),
            Measurement("rows", rows, "count", "rows"),
            Measurement("weights", table.layer.parameters, "count", "parameters"),
        ),
        fix=Fix(
            text="Give the table sparse gradients, and an optimizer that takes them (SGD, Adagrad, SparseAdam) "
            "for it alone.",
            code="table = nn.Embedding(rows, width, sparse=True)\n"
            "sparse = torch.optim.SparseAdam(table.parameters())\n"
            "dense = torch.optim.AdamW(others)  # all other parameters",
            risk="Rows that a batch does not touch are not updated: momentum and weight decay act on them later "
            "or not at all, so the training differs.",
        ),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=cost,
            low=low,
            high=high,
            method="the measured gradient, and the table's share of the optimizer's time; 70 to 100 % of them",
        ),
    )


def _touched(evidence: Evidence, table: Layer) -> float:
    """Rows of a table that a step uses, at most: as many as were different, or as there were lookups."""
    rows = float(table.weight_shape[0])
    lookups = math.prod(table.input_shape) * table.calls_per_step if table.input_shape else rows
    seen = evidence.index_use
    if isinstance(seen, Missing):
        return lookups
    different = [one.distinct for one in seen if (one.kind, one.size, one.width) == ("lookup", *table.weight_shape)]
    return min(lookups, max(different, default=rows))
