"""All tensors of all modules searched for infinity and NaN: `debug` of transformers' trainer."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.lines import told_trainer
from .limits import Limits

_SAVED = (0.9, 1.05)
"""Of these calls; the hooks around them take a little more."""


def searching_ms(evidence: Evidence) -> float:
    """Per step; 0 where nobody looks."""
    return (
        0.0
        if isinstance(evidence.searched_modules, Missing)
        else sum(call.ms_per_step for call in evidence.searched_modules)
    )


def searched_modules(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """By the calls of its hooks, timed in the job itself."""
    if isinstance(evidence.searched_modules, Missing) or not evidence.searched_modules:
        return None
    cost = Cost(step, min(searching_ms(evidence), step.working_ms))
    if cost.share < limits.min_share:
        return None
    calls = sum(call.calls_per_step for call in evidence.searched_modules)
    return Finding(
        id="PD16.searched-modules",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="transformers searches all tensors of all modules for overflows: {cost_ms} per step ({cost_share})",
        reasoning="a hook on each module takes least and greatest of its weights, inputs and outputs, looks for "
        "infinity and NaN, and reads the answers: {calls:call} per step",
        evidence=(
            *cost.measured(),
            Measurement("calls", calls, "count", "calls of modules that are looked at, per step"),
            milliseconds("each_ms", cost.ms / max(calls, 1e-9), "for each of them"),
        ),
        location=location(told_trainer(evidence.job, evidence.searched_modules[0].site, "debug")),
        fix=Fix(
            text="Take it out once the overflow is found.",
            code="TrainingArguments(...)  # without debug='underflow_overflow'",
            risk="An overflow is noticed by a loss of NaN only.",
        ),
        savings=savings(
            step, _SAVED[0] * cost.ms, _SAVED[1] * cost.ms, "its calls, timed in the job", part=Part.COMPUTE
        ),
    )
