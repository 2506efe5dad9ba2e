"""Python traced in every step: its allocations (`tracemalloc`), or its calls (`cProfile`, `sys.settrace`)."""

from __future__ import annotations

from statistics import median

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Savings,
    location,
    milliseconds,
    present,
    savings,
)
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
    """What tracing allocations takes per step; 0 where nobody traces them."""
    return _ms(evidence, step, evidence.tracing, "tracing")


def traced_calls_ms(evidence: Evidence, step: Step) -> float | Missing:
    """What tracing calls takes per step; 0 where nobody traces them."""
    return _ms(evidence, step, evidence.traced_calls, "traced_calls")


def _ms(evidence: Evidence, step: Step, timing: TracingTiming | Missing, kind: str) -> float | Missing:
    if isinstance(timing, Missing):
        aids = () if isinstance(evidence.debugging, Missing) else evidence.debugging
        return timing if any(aid.kind == kind for aid in aids) else 0.0
    return _timed_ms(evidence, step, timing)


def _timed_ms(evidence: Evidence, step: Step, timing: TracingTiming) -> float:
    return median(_shares(timing)) * _busy_ms(evidence, step)


def _shares(timing: TracingTiming) -> list[float]:
    """Of a traced step's CPU time, by round, the smallest first."""
    pairs = zip(timing.traced_ms, timing.untraced_ms, strict=False)
    return sorted(slower(traced, untraced) for traced, untraced in pairs)


def _busy_ms(evidence: Evidence, step: Step) -> float:
    """What the training thread works: without workers it makes the batches, too."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    waits = any(loader.num_workers for loader in loaders)
    return step.working_ms + (0.0 if waits else step.parts.input_wait)


def traced(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """None of what nobody traces, was not timed, or makes steps hardly longer."""
    return present(_allocations(evidence, step, limits), _calls(evidence, step, limits))


def _allocations(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    timing = evidence.tracing
    cost = _cost(evidence, step, timing, limits)
    if isinstance(timing, Missing) or cost is None:
        return None
    return Finding(
        id="PD16.traced-allocations",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=_confidence(timing),
        message="`tracemalloc` records every allocation of Python: {cost_ms} per step ({cost_share})",
        reasoning="steps of the job took turns: {traced_ms} of CPU time with {frames:frame} kept of each allocation, "
        "{untraced_ms} without",
        evidence=(
            *_measured(cost, timing),
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
        savings=_saved(evidence, step, timing, _FREEING),
    )


def _calls(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    timing = evidence.traced_calls
    cost = _cost(evidence, step, timing, limits)
    if isinstance(timing, Missing) or cost is None:
        return None
    return Finding(
        id="PD16.traced-calls",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=_confidence(timing),
        message="Python tells `{tracer}` of every call or line: {cost_ms} per step ({cost_share})",
        reasoning="steps of the job took turns: {traced_ms} of CPU time with it, {untraced_ms} with it not told",
        evidence=(
            *_measured(cost, timing),
            Measurement("tracer", timing.tracer, "text", "what `sys.settrace` or `sys.setprofile` was given"),
        ),
        location=location(timing.started_at),
        fix=Fix(
            text="Profile some steps in a run of its own, or have a sampling profiler look from outside, which costs "
            "the job little: `perfdoctor profile`, py-spy.",
            code="with cProfile.Profile() as profile:\n    for x, y in itertools.islice(loader, 50):\n"
            "        train_step(x, y)\nprofile.dump_stats('train.prof')\nsys.settrace(None)  # of a tracer",
            risk="What happens in the other steps is in no profile.",
        ),
        savings=_saved(evidence, step, timing),
    )


def _cost(evidence: Evidence, step: Step, timing: TracingTiming | Missing, limits: Limits) -> Cost | None:
    """None where it was not timed, or is little of the step."""
    if isinstance(timing, Missing):
        return None
    cost = Cost(step, _timed_ms(evidence, step, timing))
    return cost if cost.share >= limits.min_share else None


def _confidence(timing: TracingTiming) -> Confidence:
    return Confidence.HIGH if len(timing.untraced_ms) >= _ROUNDS else Confidence.MEDIUM


def _measured(cost: Cost, timing: TracingTiming) -> tuple[Measurement, ...]:
    return (
        *cost.measured(),
        milliseconds("traced_ms", median(timing.traced_ms), "a step with it, CPU time"),
        milliseconds("untraced_ms", median(timing.untraced_ms), "without"),
    )


def _saved(evidence: Evidence, step: Step, timing: TracingTiming, more: float = 1.0) -> Savings:
    """`more`: times what was measured, at most."""
    rounds, busy_ms = _shares(timing), _busy_ms(evidence, step)
    sure = rounds[1:-1] if len(rounds) >= _ROUNDS else rounds
    return savings(
        step,
        sure[0] * busy_ms,
        min(1.0, more * sure[-1]) * busy_ms,
        "steps of the job itself with tracing and without, in turns",
    )
