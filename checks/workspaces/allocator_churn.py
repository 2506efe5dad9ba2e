"""Memory that the C allocator returns to the operating system and faults back in, every step."""

from __future__ import annotations

from perfdoctor.api.causes import restart, tried
from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Evidence, HostMemory, Missing, Site, Step

from .limits import Limits

MOST_PER_FAULT = 1.6
"""A fault's true timing over the measured first touch, at most: unmapping, TLB and cache misses come on top; from a
step where faults took 43 % of the time and 1.77x was gained. Perhaps nothing is gained: where blocks come to lie is
drawn anew for each launch, and with it whether they are given back. Of 20 programs with many faults in the launch that
was watched 8 gained 1.03x or more with freed memory kept, up to 1.65x."""
_MOST_GAINED = 0.45
"""Of the step, where nothing was tried: more than 1.8x was never gained, and threads that fault at once each count."""
_TRIED_KEEPS = (0.3, 1.2)
"""Of what the passes took less with freed memory kept, in the same process. A judgement: another launch has its blocks
elsewhere."""
_FORKS = 0.2
"""Calls per step that start or end processes, from which on the faults are those of pages that a fork has shared."""
_MALLOC = (
    "export MALLOC_MMAP_THRESHOLD_=4294967296\nexport MALLOC_TRIM_THRESHOLD_=8589934592\n"
    "export MALLOC_TOP_PAD_=268435456\n"
    "python train.py"
)


def allocator_churn(
    evidence: Evidence, memory: HostMemory, step: Step, faults_ms: float, limits: Limits
) -> Finding | None:
    """Page faults that cost time, as far as the kernel's own time bears them out.

    An opportunity: the allocator's thresholds are its own choice, and nothing in the job is wrong. Faults also come and
    go from launch to launch: two healthy programs had none in one and 5 to 7 % in the next.
    """
    if _forks(evidence):
        return None
    faults_ms *= _of_operators(evidence, memory, step)
    # Faults cannot take longer than the kernel worked; its other work is not theirs.
    ceiling = min(memory.system_cpu_ms, MOST_PER_FAULT * faults_ms, step.step_ms)
    cost = Cost(step, min(memory.system_cpu_ms, faults_ms))
    if ceiling < limits.churn_share * step.step_ms:
        return None
    whole = None if isinstance(evidence.ops, Missing) else tried(step, evidence.ops, "memory kept")
    if whole is not None and whole < limits.churn_share * step.step_ms:
        return None
    low, high = (
        (0.0, min(ceiling, _MOST_GAINED * step.step_ms))
        if whole is None
        else (_TRIED_KEEPS[0] * whole, _TRIED_KEEPS[1] * whole)
    )
    return Finding(
        id="PD08.allocator-churn",
        severity=Severity.NOTE,
        confidence=Confidence.LOW if whole is None else Confidence.MEDIUM,
        message="page faults take about {cost_ms} per step ({cost_share}): the allocator does not keep its memory",
        reasoning="the allocator returns memory to the OS and faults it back in, {faults:page fault} per step; "
        "{system_share} of the process's CPU time is the kernel's; the allocator is {allocator}"
        + (", with its default thresholds" if not memory.malloc_settings else ", with {settings} set")
        + ". Another launch may have none: where blocks come to lie is chance, so try it before you keep it",
        evidence=(
            *cost.measured("in page faults per step, by their timing here"),
            Measurement("faults", round(memory.minor_faults), "count", "page faults per step"),
            milliseconds("system_ms", memory.system_cpu_ms, "kernel time per step"),
            share("system_share", memory.system_share, "CPU time spent in the kernel"),
            Measurement("allocator", memory.allocator, "text", "allocator"),
            Measurement("settings", ", ".join(name for name, _ in memory.malloc_settings) or "nothing", "text", "set"),
        ),
        location=location(_faulting(evidence)),
        fix=_allocator_fix(memory),
        savings=savings(
            step,
            low,
            high,
            "page faults times the timing of one, measured on this machine, within the kernel's CPU time"
            if whole is None
            else "the job's own passes, made again with freed memory kept",
            ceiling=max(ceiling, high),
        ),
    )


_SEEN = 1.25
"""Times the faults of the one or two steps that were watched: they differ by so much."""


def _of_operators(evidence: Evidence, memory: HostMemory, step: Step) -> float:
    """The share of the faults that is the allocator's, beside workers that start anew: after a fork the process copies
    each page that it writes to, which is a fault too. A job that forked every 12 steps had 3,400 faults a step, 900 of
    them in a step without a start, and keeping memory gained nothing."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    forks = any(restart(loader, step) is not None for loader in loaders)
    if not forks or isinstance(evidence.hot_lines, Missing) or memory.minor_faults <= 0:
        return 1.0
    return min(1.0, _SEEN * sum(line.faults_per_step for line in evidence.hot_lines) / memory.minor_faults)


_ASKED_FOR = 0.1
"""Of all faults: what the lines outside the backward pass must have for one of them to stand for the finding."""


def _faulting(evidence: Evidence) -> Site | None:
    """The line whose operators fault most memory in. The line that asks for the backward pass says nothing of whose
    memory it is, so it is named only where nearly all faults are there."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    forward = [line for line in lines if line.part != "backward"]
    if sum(line.faults_per_step for line in forward) < _ASKED_FOR * sum(line.faults_per_step for line in lines):
        forward = list(lines)
    worst = max(forward, key=lambda line: line.faults_per_step, default=None)
    return worst.site if worst is not None and worst.faults_per_step > 0 else None


def _allocator_fix(memory: HostMemory) -> Fix:
    thresholds_set = any(name.startswith("MALLOC_MMAP_THRESHOLD") for name, _ in memory.malloc_settings)
    if memory.allocator != "glibc" or thresholds_set:
        return Fix(
            text="The allocator gives memory back too eagerly: raise its decay time, or allocate large buffers once "
            "and reuse them (`out=`).",
            code="export MALLOC_CONF=background_thread:true,dirty_decay_ms:30000,muzzy_decay_ms:30000",
            language="bash",
            risk="More memory stays resident.",
        )
    return Fix(
        text="Let glibc keep the memory between steps (or preload jemalloc or tcmalloc). The variables must be set "
        "before Python starts.",
        code=_MALLOC,
        language="bash",
        risk="The process keeps its peak memory; on a machine that is short of it, set smaller values.",
        remedies=("memory.malloc", "memory.jemalloc", "memory.tcmalloc"),
    )


def _forks(evidence: Evidence) -> bool:
    calls = () if isinstance(evidence.processes, Missing) else evidence.processes
    return sum(call.calls_per_step for call in calls) >= _FORKS
