"""Modules whose own passes were run again after the last step, as they are and another way."""

from __future__ import annotations

from perfdoctor.api.findings import Cost
from perfdoctor.api.quantities import InTurn, Step

_ERROR = 0.1
"""Of a pass that was run again, more or less."""


def passes_cost(step: Step, ms: float) -> Cost:
    """What modules take of the step, as the profiler saw them: no more than its passes."""
    return Cost(step, min(ms, step.parts.forward + step.parts.backward))


def saved(cost: Cost, now_ms: float, other_ms: float) -> tuple[float, float]:
    """At least and at most, where a pass takes so much now and so much the other way."""
    least, most = (max(0.0, 1 - (1 + error) * other_ms / now_ms) * cost.ms for error in (_ERROR, -_ERROR))
    return least, most


def saved_in_turn(step: Step, one: InTurn) -> tuple[float, float]:
    """The same of a module that is called for one position after the other, by one call for all of them."""
    return saved(passes_cost(step, one.milliseconds), one.calls * one.now_ms, one.once_ms * one.calls / one.together)
