"""Python's allocations traced in every step: `tracemalloc`, by a variable or by a line of the job."""

from __future__ import annotations

from statistics import median

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, Step, TracingTiming

from .limits import Limits
from .passes import slower

_ROUNDS = 4
"""From so many on, the range is that of all rounds but the first and the last in order; of fewer, of all: a neighbour
disturbs one now and then."""
_FREEING = 1.35
"""Times what was measured, at most: Python looks for a trace of all memory that it gives back in the other steps too. A
program that takes half the time without was measured at 0.45 of it."""


def tracing_ms(evidence: Evidence, step: Step) -> float | Missing:
    """What tracing takes per step; 0 where nobody traces."""
    if isinstance(evidence.tracing, Missing):
        aids = () if isinstance(evidence.debugging, Missing) else evidence.debugging
        return evidence.tracing if any(aid.kind == "tracing" for aid in aids) else 0.0
    return median(_shares(evidence.tracing)) * _busy_ms(evidence, step)


def _shares(timing: TracingTiming) -> list[float]:
    """Of a traced step's CPU time, by round, the smallest first."""
    pairs = zip(timing.traced_ms, timing.untraced_ms, strict=False)
    return sorted(slower(traced, untraced) for traced, untraced in pairs)


def _busy_ms(evidence: Evidence, step: Step) -> float:
    """What the training thread works: without workers it makes the batches, too."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    waits = any(loader.num_workers for loader in loaders)
    return step.working_ms + (0.0 if waits else step.parts.input_wait)


def traced_allocations(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where nobody traces, it was not timed, or steps are hardly longer with it."""
    timing, ms = evidence.tracing, tracing_ms(evidence, step)
    if isinstance(timing, Missing) or isinstance(ms, Missing):
        return None
    cost = Cost(step, ms)
    if cost.share < limits.min_share:
        return None
    rounds, busy_ms = _shares(timing), _busy_ms(evidence, step)
    sure = rounds[1:-1] if len(rounds) >= _ROUNDS else rounds
    return Finding(
        id="PD16.traced-allocations",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if len(rounds) >= _ROUNDS else Confidence.MEDIUM,
        message="`tracemalloc` records every allocation of Python: {cost_ms} per step ({cost_share})",
        reasoning="steps of the job took turns: {traced_ms} of CPU time with {frames:frame} kept of each allocation, "
        "{untraced_ms} without",
        evidence=(
            *cost.measured(),
            milliseconds("traced_ms", median(timing.traced_ms), "a step with it, CPU time"),
            milliseconds("untraced_ms", median(timing.untraced_ms), "without"),
            Measurement("frames", timing.frames, "count", "frames of the stack kept of each allocation"),
        ),
        location=location(timing.started_at),
        fix=Fix(
            text="Trace in the runs that look for a leak, and for some steps of them. For the peak of memory ask the "
            "kernel, which counts it anyway.",
            code="# no tracemalloc.start() before the loop, or tracemalloc.stop() after some steps of it;\n"
            "# unset PYTHONTRACEMALLOC; python train.py, without -X tracemalloc\n"
            "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux",
            risk="Snapshots, and the places in `ResourceWarning`, lack what was allocated meanwhile.",
        ),
        savings=savings(
            step,
            sure[0] * busy_ms,
            min(1.0, _FREEING * sure[-1]) * busy_ms,
            "steps of the job itself with tracing and without, in turns",
        ),
    )
