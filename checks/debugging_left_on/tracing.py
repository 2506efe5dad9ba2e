"""Python's allocations traced in every step: `tracemalloc`, by a variable or by a line of the job."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, Step

from .limits import Limits
from .passes import slower

_LEAST = 0.7
"""Of what the passes alone are slower by: tables of traces are small in a repetition, and large in the job."""


def traced_allocations(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where nobody traces, it was not timed, or the passes are hardly slower.

    At least the passes' own slowness; at most as much of all that the step computes, since the loop and the optimizer
    allocate too: a step of 4.5 ms took 1.4 ms without.
    """
    timing = Missing("no operators") if isinstance(evidence.ops, Missing) else evidence.ops.tracing
    if isinstance(timing, Missing):
        return None
    spent = slower(timing.now_ms, timing.off_ms)
    cost = Cost(step, spent * (step.parts.forward + step.parts.backward))
    if cost.share < limits.min_share:
        return None
    return Finding(
        id="PD16.traced-allocations",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="`tracemalloc` records every allocation of Python: {cost_ms} per step ({cost_share}) in the model's "
        "passes alone",
        reasoning="the passes were run again: {now_ms} as they are, {off_ms} without; the loop and the optimizer "
        "allocate too",
        evidence=(
            *cost.measured("in forward and backward, per step"),
            milliseconds("now_ms", timing.now_ms, "the passes as they are, timed"),
            milliseconds("off_ms", timing.off_ms, "without tracing"),
        ),
        fix=Fix(
            text="Trace in the runs that look for a leak, and for some steps of them.",
            code="# no tracemalloc.start() before the loop, or tracemalloc.stop() after some steps of it;\n"
            "# unset PYTHONTRACEMALLOC; python train.py, without -X tracemalloc",
            risk="Snapshots, and the places in `ResourceWarning`, lack what was allocated meanwhile.",
        ),
        savings=savings(
            step,
            _LEAST * cost.ms,
            spent * step.working_ms,
            "the model's own passes, run again with and without after the last step",
        ),
    )
