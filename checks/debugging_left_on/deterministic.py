"""Deterministic algorithms, and the memory that torch fills under them."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, location, milliseconds, savings
from perfdoctor.api.quantities import Deterministic, DeterministicTiming, Evidence, Missing, Step

from .._shared.lines import told_trainer
from .limits import Limits
from .passes import slower

_SPREAD = (0.6, 1.2)
"""Around what was timed: in a repetition, memory that is filled is nearer than in the job."""
_FILLING = 0.7
"""Of the whole cost, from which on leaving the memory as it comes is the fix: results stay reproducible."""


def deterministic_ms(evidence: Evidence, step: Step) -> float | Missing:
    """What they take per step: the share of the passes that was timed, of the passes in the job."""
    told = evidence.deterministic
    if isinstance(told, Missing):
        return 0.0
    return told.timing if isinstance(told.timing, Missing) else _cost_ms(told.timing, step, told.timing.off_ms)


def _cost_ms(timing: DeterministicTiming, step: Step, otherwise_ms: float) -> float:
    return (step.parts.forward + step.parts.backward) * slower(timing.now_ms, otherwise_ms)


def deterministic_algorithms(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where they are off, were not timed, or cost less than their least share of the step."""
    told, ms = evidence.deterministic, deterministic_ms(evidence, step)
    if isinstance(told, Missing) or isinstance(told.timing, Missing) or isinstance(ms, Missing):
        return None
    cost = Cost(step, ms)
    if cost.share < limits.min_share:
        return None
    timing = told.timing
    fills = timing.unfilled_ms is not None and _cost_ms(timing, step, timing.unfilled_ms) >= _FILLING * ms
    return Finding(
        id="PD16.deterministic-algorithms",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="deterministic algorithms take {cost_ms} per step ({cost_share})"
        + (", nearly all of it to fill new memory" if fills else ""),
        reasoning="the job's own forward and backward passes were run again: {now_ms} as they are, {off_ms} without"
        + (", {unfilled_ms} with new memory left as it comes" if timing.unfilled_ms is not None else ""),
        evidence=(
            *cost.measured(),
            milliseconds("now_ms", timing.now_ms, "the passes as they are, timed"),
            milliseconds("off_ms", timing.off_ms, "without deterministic algorithms"),
            *(
                (milliseconds("unfilled_ms", timing.unfilled_ms, "with new memory left as it comes"),)
                if timing.unfilled_ms is not None
                else ()
            ),
        ),
        location=location(told_trainer(evidence.job, told.site, "deterministic", "full_determinism")),
        fix=_fix(told, fills),
        savings=savings(
            step,
            _SPREAD[0] * cost.ms,
            _SPREAD[1] * cost.ms,
            "the job's own passes, run again with and without after its last step",
            ceiling=min(_SPREAD[1] * cost.ms, step.parts.forward + step.parts.backward),
        ),
    )


def _fix(told: Deterministic, fills: bool) -> Fix:
    if fills:
        return Fix(
            text="Leave new memory as it comes: only code that reads what it never wrote depends on it.",
            code="torch.utils.deterministic.fill_uninitialized_memory = False",
            risk="Code that reads memory it never wrote gives other results from run to run.",
            remedies=("debug.no-fill",),
        )
    return Fix(
        text="Use them in the runs that are to be compared bit by bit, and not in the others.",
        code="torch.use_deterministic_algorithms(False)",
        risk="The last digits of results may differ from run to run.",
        remedies=("debug.no-deterministic",),
    )
