"""Operators that go through all that there was so far, in every step."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, GrowingWork, Missing, Step

from .._shared.aside import AROUND_MS, OPERATORS
from .growth import AHEAD, Limits

_LONGER = 3
"""Times the steps seen that a loop is taken to be long at most, where its length is not known."""


def growing_work(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """Of the dearest line that reads further with each step; None where that is little of the steps seen."""
    seen = evidence.growing_work
    one = None if isinstance(seen, Missing) or not seen else _in_the_middle_of_epochs(evidence, seen[0])
    if one is None or one.forward_ms < limits.min_share * step.step_ms:
        return None
    cost, end_ms = Cost(step, min(one.forward_ms, step.step_ms)), _in_the_end_ms(evidence, step, one)
    low = OPERATORS[0] * cost.ms
    high = OPERATORS[1] * cost.ms + AROUND_MS[1] * one.ops_per_step
    return Finding(
        id="PD15.growing-work",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="this line goes through more numbers with each step: {cost_ms} per step ({cost_share})"
        + ("" if one.starts_anew else " so far"),
        reasoning="{names} read {numbers:number} in the mean of the steps seen and {more} more with each step: one "
        "tensor further each time, or more parts of one; what was read before is read again"
        + ("; steps get longer and shorter again, so that it starts anew now and then" if one.starts_anew else ""),
        evidence=(
            *cost.measured("in these operators, in the mean of the steps seen"),
            Measurement("names", ", ".join(f"`{name}`" for name in one.operators), "text", "the longest of them"),
            Measurement("numbers", one.numbers, "count", "numbers that they read"),
            Measurement("more", one.more, "count", "more with each step"),
            milliseconds("end_ms", end_ms, "of the mean step of the whole loop"),
        ),
        location=location(one.at),
        fix=Fix(
            text=(
                "Compute it once, before it starts anew: a metric where its epoch ends. Else: "
                if one.starts_anew
                else ""
            )
            + "Carry what it makes from step to step, and add what is new: a count, a sum and a sum of squares.",
            code="count, mean = count + 1, mean + (new - mean) / (count + 1)  # not history[: day + 1].mean(0)\n"
            "squares = squares + (new - before) * (new - mean)  # std = (squares / count).sqrt()",
            risk="Sums that are carried add in another order; what looks back a fixed way needs that part only.",
        ),
        savings=savings(
            step,
            low,
            max(high, end_ms),
            "these operators, timed one by one in the job itself; at most what that comes to over the whole loop",
        ),
    )


def _in_the_middle_of_epochs(evidence: Evidence, one: GrowingWork) -> GrowingWork:
    """What starts anew, where it goes through half an epoch of the loader; as it is where it has gone further."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    steps = (
        each.batches_per_iterator / each.steady_batches_per_step for each in loaders if each.steady_batches_per_step
    )
    epoch = one.more * max(steps, default=0.0)
    if not one.starts_anew or one.numbers > epoch:
        return one
    return replace(one, forward_ms=one.forward_ms * epoch / 2 / one.numbers, numbers=round(epoch / 2))


def _in_the_end_ms(evidence: Evidence, step: Step, one: GrowingWork) -> float:
    """Of this step, the share that it has of the mean step of the whole loop."""
    if one.starts_anew:
        return one.forward_ms
    growth = evidence.growth
    planned = 0 if isinstance(growth, Missing) else growth.planned_steps
    planned = planned if 0 < planned <= AHEAD * one.steps else _LONGER * one.steps
    more = max(0, planned - one.steps) / 2 * one.more
    whole_ms = one.forward_ms * (one.numbers + more) / one.numbers
    rest_ms = max(0.0, step.step_ms - one.forward_ms)
    return step.step_ms * whole_ms / (rest_ms + whole_ms) if whole_ms > 0 else 0.0
