"""Threads beside a training loop that take a CPU for asking whether there is something to do."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    severity,
)
from perfdoctor.api.quantities import Missing, Step

from .case import Forwards, Limits

_SAVED = (0.5, 2.2)
"""Of the time in which a thread that computes has to wait for its CPU, with all of its team: a thread that asks gives
way at times, and takes the interpreter's lock at others. Measured once: a step of 21 ms took 36 beside a thread that
asked for 0.19 of a CPU, which is 2.1 times as much."""


def busy_waiting(case: Forwards, limits: Limits) -> Finding | None:
    """By the CPU that such threads take from training: what idles beside them is none of that. A team of compute
    threads waits for the one of them that has no CPU. Or by how long the training thread waits for one, where that is
    more: whether a CPU idles is looked at now and then, and between operators they do. Where it stands still beyond
    that it may wait for the interpreter, which who asks takes again and again: an opportunity, if only that is dear."""
    beside, step = case.beside_training, case.step
    if beside is None or not beside[0].busy:
        return None
    seen, host = beside
    wasted = sum(thread.wasted_cpus for thread in seen.busy)
    taken = max(0.0, wasted - host.idle_cpus)
    lost_ms = min(1.0, taken * min(1.0, case.intra_op / case.usable)) * step.step_ms
    delay_ms = 0.0 if isinstance(step.run_delay_ms, Missing) else step.run_delay_ms
    fits = case.intra_op <= case.evidence.machine.usable_cpus
    if fits and wasted > 0:
        lost_ms = max(lost_ms, delay_ms * wasted / (wasted + host.others_cpus))
    busiest, sure_ms = seen.busy[0], lost_ms
    if sure_ms < limits.min_share * step.step_ms:
        lost_ms += busiest.asks * _standing_ms(step, delay_ms, seen.loop_waits)
    low, high = (fraction * lost_ms for fraction in _SAVED)
    if lost_ms < limits.min_share * step.step_ms:
        return None
    is_sure = lost_ms == sure_ms
    return Finding(
        id="PD06.busy-waiting",
        severity=severity(lost_ms / step.step_ms, limits.min_share, limits.error_share) if is_sure else Severity.NOTE,
        confidence=Confidence.HIGH if is_sure else Confidence.MEDIUM,
        message="{threads:thread asks|threads ask} without end whether there is something to do, for "
        "{wasted:CPU|CPUs}: {lost_ms} per step",
        reasoning="in {looks:look} at all threads, {asks_share} found the busiest at lines of this loop that do "
        "nothing else; {usable:CPU|CPUs} are there for the job, of which {idle} idle",
        evidence=(
            Measurement("threads", len(seen.busy), "count", "threads that ask"),
            Measurement("wasted", round(wasted, 2), "count", "CPUs that they take for it"),
            milliseconds("lost_ms", lost_ms, "that training would be faster with these CPUs, per step"),
            Measurement("asks_share", busiest.asks, "share", "of the looks at the busiest thread"),
            Measurement("looks", seen.looks, "count", "looks at all threads"),
            Measurement("usable", round(case.usable, 1), "count", "CPUs left to the job"),
            Measurement("idle", round(host.idle_cpus, 2), "count", "of them idle"),
        ),
        location=location(busiest.site),
        fix=Fix(
            text="Have the thread wait until there is something to do; where it must look now and then, let it sleep "
            "in between.",
            code="record = box.get()  # waits; not get_nowait() in a loop\n"
            "closing.wait(0.25)   # or a pause that takes no CPU",
            risk="What it is told comes to it a moment later.",
        ),
        savings=savings(step, low, high, "the time in which they take a CPU that a compute thread would have"),
    )


def _standing_ms(step: Step, delay_ms: float, loop_waits: float) -> float:
    """Time of a step in which the training thread neither computes nor waits for a CPU, for data, for other ranks or in
    a lock."""
    waits_ms = delay_ms + step.parts.input_wait + step.parts.communication + loop_waits * step.step_ms
    return max(0.0, step.step_ms - step.cpu_ms - waits_ms)
