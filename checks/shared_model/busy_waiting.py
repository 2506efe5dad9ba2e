"""Threads beside a training loop that take a CPU for asking whether there is something to do."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds, savings, severity
from perfdoctor.api.quantities import Missing

from .case import Forwards, Limits

_SAVED = (0.5, 2.2)
"""Of the time in which a thread that computes has to wait for its CPU, with all of its team: a thread that asks gives
way at times, and takes the interpreter's lock at others. Measured once: a step of 21 ms took 36 beside a thread that
asked for 0.19 of a CPU, which is 2.1 times as much."""


def busy_waiting(case: Forwards, limits: Limits) -> Finding | None:
    """By the CPU that such threads take from training: what idles beside them is none of that. A team of compute
    threads waits for the one of them that has no CPU. Or by how long the training thread waits for one, where that is
    more: whether a CPU idles is looked at now and then, and between operators they do."""
    beside, step = case.beside_training, case.step
    if beside is None or not beside[0].busy:
        return None
    seen, host = beside
    wasted = sum(thread.wasted_cpus for thread in seen.busy)
    taken = max(0.0, wasted - host.idle_cpus)
    lost_ms = min(1.0, taken * min(1.0, case.intra_op / case.usable)) * step.step_ms
    fits = case.intra_op <= case.evidence.machine.usable_cpus
    if fits and not isinstance(step.run_delay_ms, Missing) and wasted > 0:
        lost_ms = max(lost_ms, step.run_delay_ms * wasted / (wasted + host.others_cpus))
    low, high = (fraction * lost_ms for fraction in _SAVED)
    if lost_ms < limits.min_share * step.step_ms:
        return None
    busiest = seen.busy[0]
    return Finding(
        id="PD06.busy-waiting",
        severity=severity(lost_ms / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
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
