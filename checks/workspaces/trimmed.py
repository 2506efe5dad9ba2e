"""Memory that the job itself has the C allocator give back, only to fault it in again."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, HostMemory, Missing, Step

from .._shared.lines import key
from .allocator_churn import MOST_PER_FAULT
from .limits import Limits

_LEAST_PER_FAULT = 0.3
"""Of the page faults' timing: a step without `malloc_trim` has some of its own, since the allocator trims by itself."""


def memory_trimmed(
    evidence: Evidence, memory: HostMemory, step: Step, faults_ms: float, limits: Limits
) -> Finding | None:
    """By the call's own time and that of the page faults; where its line was seen to run in a step."""
    at = evidence.job.option("malloc_trim")
    lines = () if isinstance(evidence.code_lines, Missing) else evidence.code_lines
    if at is None:
        return None
    spent = [line.ms_per_step for line in lines if key(line.site) == key(at)]
    if not spent:
        return None
    call_ms, faults_ms = evidence.felt_ms(sum(spent)), min(memory.system_cpu_ms, faults_ms)
    cost = Cost(step, call_ms + faults_ms)
    if call_ms + _LEAST_PER_FAULT * faults_ms < limits.min_share * step.step_ms:
        return None
    return Finding(
        id="PD08.memory-trimmed",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="`malloc_trim` gives memory back that the next step faults in again: {cost_ms} per step ({cost_share})",
        reasoning="the call takes {call_ms}, and {faults:page fault} per step about {faults_ms}",
        evidence=(
            *cost.measured("in the call and in page faults, by their timing here"),
            milliseconds("call_ms", call_ms, "in the call, per step"),
            milliseconds("faults_ms", faults_ms, "in page faults, per step"),
            Measurement("faults", round(memory.minor_faults), "count", "page faults per step"),
        ),
        location=location(at),
        fix=Fix(
            text="Take it out of the loop; once, after a phase that needs much more memory than what follows, it does "
            "no harm.",
            code="if epoch_ends:\n    libc.malloc_trim(0)  # not after each step",
            risk="The process keeps its peak memory between steps.",
        ),
        savings=savings(
            step,
            call_ms + _LEAST_PER_FAULT * faults_ms,
            min(call_ms + MOST_PER_FAULT * faults_ms, step.step_ms),
            "the call, timed in a step or two of the job itself, and page faults times the timing of one",
        ),
    )
