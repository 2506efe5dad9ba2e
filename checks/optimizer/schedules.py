"""A learning-rate schedule that is stepped more often than the optimizer, as inside a loop over micro-batches."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, savings
from perfdoctor.api.quantities import CallSite, Evidence, Missing, Step

from .limits import Limits

_OFTEN = 1.5
"""Calls of a line per step of the optimizer: one is as it should be, and epochs that end within a step add a few."""
_SPREAD = (0.8, 1.0)
"""Of what fewer calls save: each was timed with the probe's own look at it."""


def stepped_schedules(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line whose calls cost enough, the dearest first."""
    calls = () if isinstance(evidence.schedules, Missing) else evidence.schedules
    return tuple(
        _finding(step, call, Cost(step, call.ms_per_step), limits)
        for call in calls
        if call.calls_per_step >= _OFTEN and Cost(step, call.ms_per_step).share >= limits.schedule_share
    )


def _finding(step: Step, call: CallSite, cost: Cost, limits: Limits) -> Finding:
    saved_ms = cost.ms * (1 - 1 / call.calls_per_step)
    return Finding(
        id="PD17.schedule-steps",
        severity=cost.severity(limits.schedule_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="this line steps the learning-rate schedule {calls:time} per step of the optimizer: {cost_ms} "
        "({cost_share})",
        reasoning="each call computes the rates of all groups anew, and the optimizer sees the last only; each was "
        "timed in the job itself",
        evidence=(
            *cost.measured(),
            Measurement("calls", round(call.calls_per_step, 1), "count", "calls of the line per step"),
        ),
        location=location(call.site),
        fix=Fix(
            text="Step the schedule once, after the optimizer's step.",
            code="optimizer.step()\nscheduler.step()  # outside the loop over micro-batches",
            risk="The rate then follows the schedule as many times more slowly: set its length in optimizer steps.",
        ),
        savings=savings(
            step,
            _SPREAD[0] * saved_ms,
            _SPREAD[1] * saved_ms,
            "the calls' own time, but for one per step",
            ceiling=cost.ms,
            part=Part.OTHER,
        ),
    )
