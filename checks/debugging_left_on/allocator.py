"""Python's debugging allocator: `PYTHONMALLOC=debug`, or Python's development mode, which brings it."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, Step

from .limits import Limits


def _range_ms(evidence: Evidence, step: Step) -> tuple[float, float] | Missing:
    """Of the Python of a step, at least and at most; nothing where no such allocator is in use."""
    timing, ops = evidence.allocator, evidence.ops
    if isinstance(timing, Missing):
        return timing
    if isinstance(ops, Missing):
        return ops
    python_ms = _python_ms(step, ops.self_ms_per_step)
    low, high = (
        evidence.felt_ms(python_ms * max(0.0, 1 - 1 / ratio)) for ratio in sorted((timing.calling, timing.allocating))
    )
    return low, high


def _python_ms(step: Step, operators_ms: float) -> float:
    """What of the step's work is in none of torch's operators."""
    return max(0.0, step.working_ms - operators_ms)


def allocator_ms(evidence: Evidence, step: Step) -> float | Missing:
    """What it costs per step, the middle of the range; 0 where it is off."""
    if isinstance(evidence.debugging, Missing) or all(aid.kind != "allocator" for aid in evidence.debugging):
        return 0.0
    found = _range_ms(evidence, step)
    return found if isinstance(found, Missing) else sum(found) / 2


def debugging_allocator(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where it is off, was not timed, or costs less than its least share of the step."""
    timing, ops, ms = evidence.allocator, evidence.ops, _range_ms(evidence, step)
    if isinstance(timing, Missing) or isinstance(ops, Missing) or isinstance(ms, Missing):
        return None
    low, high = ms
    cost = Cost(step, (low + high) / 2)
    if cost.share < limits.min_share:
        return None
    aids = () if isinstance(evidence.debugging, Missing) else evidence.debugging
    off = [aid.off for aid in aids if aid.kind == "allocator"]
    return Finding(
        id="PD16.debugging-allocator",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="Python's debugging allocator fills and checks every block of memory: about {cost_ms} per step "
        "({cost_share})",
        reasoning="of the step {python_ms} are Python's own, in none of torch's operators; timed in an interpreter of "
        "the job's after it, making small objects takes {allocating} as long with these settings as without, calling "
        "functions {calling}",
        evidence=(
            *cost.measured("per step, estimated"),
            milliseconds("python_ms", _python_ms(step, ops.self_ms_per_step), "of the step, in no operator of torch's"),
            Measurement("allocating", timing.allocating, "ratio", "times as long, to make small objects"),
            Measurement("calling", timing.calling, "ratio", "times as long, to call functions"),
        ),
        fix=Fix(
            text="Switch it off, and on again for a run that is to find a damaged object or an unclosed file.",
            code="\n".join(off).replace(", without", "  # without"),
            language="bash",
            risk="Damage that C extensions do to Python's memory is found later, or not at all.",
        ),
        savings=savings(
            step,
            low,
            high,
            "Python's part of the step, and how much longer an interpreter takes so, timed after the job",
        ),
    )
