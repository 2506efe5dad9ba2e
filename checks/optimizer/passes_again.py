"""Backward passes that go through the same graph one after the other."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, PassAgain, Step

from .._shared.aside import with_around
from .limits import Limits


def passes_again(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """For each line; none where each graph is gone through once, or the rest costs little."""
    seen = () if isinstance(evidence.passes_again, Missing) else evidence.passes_again
    found = (_finding(step, one, limits) for one in seen)
    return tuple(one for one in found if one is not None)


def _finding(step: Step, one: PassAgain, limits: Limits) -> Finding | None:
    low, high = with_around(one.ms_per_step, one.ops_per_step)
    cost = Cost(step, (low + high) / 2)
    if cost.share < limits.passes_share:
        return None
    return Finding(
        id="PD17.passes-one-by-one",
        severity=cost.severity(limits.passes_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="backward passes go through the same graph again, loss by loss: {cost_ms} per step ({cost_share})",
        reasoning="{operators:operator} per step run for parts of a graph that an earlier backward pass went through "
        "({again_ms}); nobody reads or changes a gradient in between, so they add up all the same",
        evidence=(
            *cost.measured(),
            milliseconds("again_ms", one.ms_per_step, "in operators of nodes that an earlier pass has gone through"),
            Measurement("operators", one.ops_per_step, "count", "such operators, per step"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Add the losses up, and go back once.",
            code="(loss + weight * auxiliary).backward()  # not one backward(retain_graph=True) for each",
            risk="Gradients are added in another order: results differ by rounding.",
        ),
        savings=savings(step, low, high, "operators of the backward pass, timed one by one in the job itself"),
    )
