"""Gradients that are filled with zeros and added to, where they could be let go."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Severity, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Line, Missing, Step

from .limits import Limits

_LINE = ":zero_grad"
"""How a line ends that calls an optimizer's or a module's `zero_grad`; it issues operators only where it fills."""
_WARM = 0.7
"""Of the saving that was timed: in the job, what the backward pass makes lies elsewhere than in a repetition."""


def zeroed_gradients(evidence: Evidence, step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """None where both ways were not timed, or letting go saves little.

    Never more than a note: where the job's memory lies otherwise than in the repetition, the allocator may fault in
    again what was let go (a job took 1.35 times as long so).
    """
    here = [line for line in lines if line.site.via.endswith(_LINE)]
    timing = Missing("no operators") if isinstance(evidence.ops, Missing) else evidence.ops.parameters
    if not here or isinstance(timing, Missing):
        return None
    cost = Cost(step, min((timing.zeroed_ms - timing.released_ms) / timing.part, step.working_ms))
    if cost.ms <= 0 or cost.share < limits.zeroed_share:
        return None
    return Finding(
        id="PD17.zeroed-gradients",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="`set_to_none=False` makes each step fill gradients and add to them: {cost_ms} more ({cost_share})",
        reasoning="timed on tensors of the same shapes, filling and adding takes {zeroed_ms}, letting the gradients go "
        "and taking new ones {released_ms}",
        evidence=(
            *cost.measured("more than with gradients that are let go, per step"),
            milliseconds("zeroed_ms", timing.zeroed_ms, "filling and adding, timed"),
            milliseconds("released_ms", timing.released_ms, "letting go and taking, timed"),
            milliseconds("line_ms", sum(line.ms_per_step for line in here), "in the line itself"),
        ),
        location=location(max(here, key=lambda line: line.ms_per_step).site),
        fix=Fix(
            text="Leave the argument out: torch lets gradients go by itself.",
            code="optimizer.zero_grad()  # set_to_none=True",
            risk="A parameter that a step does not use has no gradient then, and is not updated by momentum or decay; "
            "code that reads `p.grad` meets None.",
            remedies=("optimizer.set-to-none",),
        ),
        savings=savings(
            step,
            _WARM * cost.ms,
            cost.ms,
            "both ways, timed in the job's process on tensors of the same shapes",
        ),
    )
