"""Embedding tables whose gradient is as large as they are, however few rows a batch touches."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    savings,
    share,
)
from perfdoctor.api.quantities import Evidence, Layer, Missing

from .case import Case
from .layer_table import title

_GRADIENTS = ("embedding_dense_backward", "_embedding_bag_dense_backward")
_NAMED = 0.02
"""Share of the step from which on a table is one of those that cost too much together."""
_ROWS_COST = {"SGD": 2.5, "Adagrad": 2.5}
_ADAM_COSTS = 9.5
"""What a sparse gradient and its update take, over a dense one's, for each share of the rows that is touched. Of a
table of 40,961 x 128, two threads: Adagrad took 0.28 of it where 9 % of the rows were touched, 0.45 at 18 %, 0.66 at
26 %; SGD 0.21, 0.52 and 0.64; SparseAdam 0.85 at 9 % and 1.75 at 18 % of what fused Adam took."""
_WORTH = 0.75
"""Of a dense gradient, what a sparse one may take at most."""
_OFF = (1.3, 0.5)
"""Around that: other tables and rows; memory that is not needed stays in nobody's way."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table and what its dense gradient costs, milliseconds of an ordinary step."""

    layer: Layer
    gradient_ms: float
    update_ms: float
    """Of the optimizer, by the table's share of the parameters."""
    touched: float
    """Rows that a step uses, at most."""

    left: float
    """Of both, with sparse gradients."""

    @property
    def ms(self) -> float:
        return self.gradient_ms + self.update_ms

    def saved_ms(self, off: float) -> float:
        """Where what is left is so many times as much."""
        return self.ms * max(0.0, 1 - off * self.left)


def dense_embedding_gradient(case: Case) -> Finding | None:
    """Tables whose dense gradients, and the optimizer's pass over them, cost time that few rows need."""
    evidence, step, ops, limits = case.evidence, case.step, case.evidence.ops, case.limits
    embeddings = (layer for layer in case.profile.layers if layer.kind.startswith("Embedding"))
    tables = [layer for layer in embeddings if layer.weight_shape and not layer.sparse]
    if isinstance(ops, Missing) or not tables or not case.parameters:
        return None
    gradient = in_step(step, ops, sum(op.total_ms_per_step for op in ops.ops if op.name in _GRADIENTS))
    every = sum(table.parameters for table in tables)
    optimizer = None if isinstance(ops.update, Missing) else ops.update.optimizer
    slope = _ROWS_COST.get(optimizer or "", _ADAM_COSTS)
    costs = []
    for table in tables:
        touched, gradient_ms = _touched(evidence, table), gradient * table.parameters / max(1, every)
        left = slope * touched / table.weight_shape[0]
        costs.append(_Table(table, gradient_ms, case.update_ms(table), touched, left))
    costs = [one for one in costs if one.left <= _WORTH and Cost(step, one.ms).share >= _NAMED]
    costs.sort(key=lambda one: -one.ms)
    # Several tables may each cost little and together too much; they have one cure.
    if not gradient or case.sure_share(sum(table.ms for table in costs)) < limits.min_share:
        return None
    return _finding(case, costs)


def _finding(case: Case, tables: list[_Table]) -> Finding:
    cost = Cost(case.step, sum(table.ms for table in tables))
    low, high = (sum(table.saved_ms(off) for table in tables) for off in _OFF)
    touched, rows = sum(table.touched for table in tables), sum(table.layer.weight_shape[0] for table in tables)
    return Finding(
        id="PD09.dense-embedding-gradient",
        # Nothing is wrong: sparse gradients train a little differently.
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="dense gradients of "
        + ("{tables} embedding tables, {layer}," if len(tables) > 1 else "the embedding table {layer}")
        + " take {dense_ms} per step ({dense_share})",
        reasoning="a batch touches at most {touched} of {rows:row}, but the gradient and the optimizer's pass are as "
        "large as the table",
        evidence=(
            Measurement("layer", ", ".join(title(table.layer) for table in tables), "text"),
            milliseconds("dense_ms", cost.ms, "gradient and update per step"),
            share("dense_share", cost.share, "of the step"),
            milliseconds("gradient_ms", sum(table.gradient_ms for table in tables), "making the dense gradient"),
            milliseconds(
                "update_ms", sum(table.update_ms for table in tables), "optimizer, by the share of the parameters"
            ),
            Measurement("tables", len(tables), "count", "tables"),
            Measurement("touched", round(touched), "count", "rows looked up per step"),
            Measurement("rows", rows, "count", "rows"),
            Measurement("weights", sum(table.layer.parameters for table in tables), "count", "parameters"),
        ),
        location=location(tables[0].layer.place),
        fix=Fix(
            text="Give the table sparse gradients, and an optimizer that takes them (SGD, Adagrad, SparseAdam) for it "
            "alone.",
            code="table = nn.Embedding(rows, width, sparse=True)\n"
            "sparse = torch.optim.SparseAdam(table.parameters())\n"
            "dense = torch.optim.AdamW(others)  # all other parameters",
            risk="Rows that a batch does not touch are not updated: momentum and weight decay act on them later or "
            "not at all, so the training differs.",
        ),
        savings=savings(
            case.step,
            low,
            high,
            "the measured gradient, and the share of the optimizer's time, by how much sparse ones take for as large a "
            "share of the rows",
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
