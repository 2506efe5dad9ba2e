"""A profiler of the job's own that records every step, or most of them."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.lines import told_trainer
from .limits import Limits

_IN_A_JOB = 1.6
"""Times what was timed: a network of its own has its records in the caches. In four programs with four kinds of
profiles an operator took 0.9 to 2.6 times as much longer, half of them more than this ..."""
_SPREAD = (0.6, 1.6)
"""... so the rest is around it."""
_ENDING = (0.9, 1.1)
"""Of what its `step()` was timed to take."""
_EMITTERS = ("emit_nvtx", "emit_itt")


def profiler_ms(evidence: Evidence) -> float | Missing:
    """Per step, of one that does not end by itself, over all steps, profiled or not."""
    operators_ms = _operators_ms(evidence)
    return operators_ms if isinstance(operators_ms, Missing) else operators_ms + _cycles_ms(evidence)


def _operators_ms(evidence: Evidence) -> float | Missing:
    """What operators take longer."""
    profiled = evidence.profiled
    timed_ms = 0.0 if isinstance(profiled, Missing) else profiled.timed_ms
    return timed_ms if isinstance(timed_ms, Missing) else evidence.felt_ms(_IN_A_JOB * timed_ms)


def _cycles_ms(evidence: Evidence) -> float:
    """What its cycles' beginnings and ends take of an ordinary step: beside a window a cycle has more to write."""
    profiled, step = evidence.profiled, evidence.step
    if isinstance(profiled, Missing) or isinstance(step, Missing) or not profiled.share:
        return 0.0
    return evidence.felt_ms(min(step.parts.other, sum(call.ms_per_step for call in profiled.cycles)))


def profiler_left_on(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where it is off, ends by itself, was not timed, or costs less than its least share of the step."""
    profiled, cycles_ms = evidence.profiled, _cycles_ms(evidence)
    if isinstance(profiled, Missing):
        return None
    timed = _operators_ms(evidence)
    operators_ms = 0.0 if isinstance(timed, Missing) else timed
    cost = Cost(step, min(operators_ms + cycles_ms, step.working_ms))
    if cost.share < limits.min_share:
        return None
    low, high = (spread * operators_ms + ending * cycles_ms for spread, ending in zip(_SPREAD, _ENDING, strict=True))
    return Finding(
        id="PD16.profiler-left-on",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="a profiler of the job's own is on in {profiled_share} of the steps: {cost_ms} per step ({cost_share})",
        reasoning="it records every operator"
        + (" with {records}" if profiled.options else "")
        + (
            ""
            if isinstance(timed, Missing)
            else "; timed in the job's process, a step's operators take {timed_ms} longer with such a profiler, and "
            "more where its records are not in the caches"
        )
        + ("; its `step()` takes {cycles_ms}, where cycles begin and end and traces are written" * (cycles_ms > 0)),
        evidence=(
            *cost.measured(),
            share("profiled_share", profiled.share, "of the steady steps with it on"),
            milliseconds("timed_ms", operators_ms / _IN_A_JOB, "operators per step times what one takes longer, timed"),
            milliseconds("cycles_ms", cycles_ms, "in its `step()`, per step of the job"),
            *((Measurement("records", ", ".join(profiled.options), "text", "recorded"),) if profiled.options else ()),
        ),
        location=location(told_trainer(evidence.job, profiled.site, "profiler")),
        fix=_emitter(profiled.options[0])
        if profiled.options and profiled.options[0] in _EMITTERS
        else Fix(
            text="Take it out, or give it a schedule by which it ends. All that it records stays in memory until then.",
            code="schedule = torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)  # then it is off\n"
            "with torch.profiler.profile(schedule=schedule, on_trace_ready=...) as profiler:\n"
            "    ...  # profiler.step() after each step",
            risk="Later steps are not in the trace.",
            remedies=("debug.no-profiler",),
        ),
        savings=savings(
            step,
            low,
            high,
            "operators per step, times what one takes longer with such a profiler, timed in the job's process"
            + (", and the calls of its `step()`, as timed" * (cycles_ms > 0)),
            ceiling=min(high, step.working_ms),
        ),
    )


def _emitter(kind: str) -> Fix:
    """It records nothing, and tells another profiler of each operator."""
    return Fix(
        text="Switch it on only where the profiler runs that it tells of operators.",
        code=f"with torch.autograd.profiler.{kind}(enabled=args.trace):\n    train(model)",
        risk="A trace of that profiler's without it has no names of operators.",
        remedies=("debug.no-profiler",),
    )
