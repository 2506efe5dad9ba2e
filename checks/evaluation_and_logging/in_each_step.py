"""Metrics in every step of training: operators whose results end in numbers that training does not need."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Severity, location, present, savings
from perfdoctor.api.quantities import AsideWork, Evidence, Missing, Step

from .._shared.aside import measured, saved_ms, told_here, validates
from .limits import Limits

_RARELY = 0.99
"""What is left out where every hundredth step computes it."""


def metrics_in_each_step(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line; none where every step evaluates, which is told as such, or of what PD15 tells whole, or PD16
    of what distributions test."""
    evaluations = evidence.evaluations
    if not isinstance(evaluations, Missing) and evaluations.held_out and evaluations.regular:
        return ()
    growing = () if isinstance(evidence.growing_work, Missing) else evidence.growing_work[:1]
    whole = {one.at for one in growing if one.starts_anew and one.forward_ms >= limits.min_share * step.step_ms}
    rest = (one for one in told_here(evidence.metrics, evidence) if one.at not in whole and not validates(one))
    return present(*(_finding(step, one, limits) for one in rest))


def _finding(step: Step, one: AsideWork, limits: Limits) -> Finding | None:
    low, high = (_RARELY * ms for ms in saved_ms(one))
    cost = Cost(step, _RARELY * one.forward_ms)
    if (low + high) / 2 < limits.min_share * step.step_ms:
        return None
    return Finding(
        id="PD20.metrics-in-each-step",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="this line computes numbers to look at, in every step of training: {cost_ms} ({cost_share})",
        reasoning="{operators:operator} per step, most of the time {names}, end in single numbers that are read or "
        "kept; no backward pass and no optimizer needs what they compute"
        + (", and it is more with each step" if one.grows else ""),
        evidence=(*cost.measured(), *measured(one)),
        location=location(one.at),
        fix=Fix(
            text="If it is a metric, compute it every hundredth step, or at the end of the epoch.",
            code="if step % 100 == 0:\n    log(metric.compute())",
            risk="The curve has fewer points. Where the job decides by the number, it decides more rarely.",
        ),
        savings=savings(step, low, high, "operators of two steps, timed one by one in the job itself"),
    )
