"""Losses that count nothing, and are computed and gone back through all the same."""

from __future__ import annotations

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
)
from perfdoctor.api.quantities import Evidence, Missing, Step, WeightedWork

from .._shared.aside import with_around
from .limits import Limits


def weighted_by_zero(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line that multiplies by 0; none where little is computed for that alone."""
    seen = () if isinstance(evidence.weighted, Missing) else evidence.weighted
    return present(*(_finding(step, one, limits) for one in seen))


def _finding(step: Step, one: WeightedWork, limits: Limits) -> Finding | None:
    """An opportunity: a weight may be 0 in the first epochs only."""
    both_ms = one.forward_ms + one.backward_ms
    low, high = with_around(both_ms, one.ops_per_step)
    cost = Cost(step, both_ms)
    if (low + high) / 2 < limits.repeated_share * step.step_ms:
        return None
    return Finding(
        id="PD10.weighted-by-zero",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="a loss is multiplied by 0, and computed all the same: {cost_ms} per step ({cost_share})",
        reasoning="{operators:operator} per step, most of the time {names}, lead to this product with 0 and to nothing "
        "else that a backward pass goes through; it goes back through them with gradients of zeros",
        evidence=(
            *cost.measured(),
            milliseconds("forward_ms", one.forward_ms, "in those of them at which nobody looks, per step"),
            milliseconds("backward_ms", one.backward_ms, "in their part of the backward pass, per step"),
            Measurement("operators", one.ops_per_step, "count", "operators that lead to it, per step"),
            Measurement("names", ", ".join(f"`{name}`" for name in one.operators), "text", "the longest of them"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Compute it only where its weight is not 0; to look at it, under `torch.no_grad()`, now and then.",
            code="if weight > 0:\n    loss = loss + weight * reconstruction(model, x)",
            risk="Parameters that only it teaches get no gradients, in place of zeros: weight decay leaves them alone, "
            "and DistributedDataParallel has to be told (`find_unused_parameters=True`).",
        ),
        savings=savings(step, low, high, "operators of two steps, timed one by one in the job itself"),
    )
