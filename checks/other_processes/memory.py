"""Waiting for pages that were swapped out or thrown away."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, share
from perfdoctor.api.quantities import Cause, Missing

from .case import WAITED, Case

_SWAP_PAGE_MS = 0.1
"""A 4 KiB page from a solid-state disk: 0.05 to 0.2 ms."""


def memory_pressure(case: Case) -> Finding | None:
    """By the kernel's pressure, or the pages swapped in."""
    host, limits, step = case.host, case.limits, case.step
    pressure = 0.0 if isinstance(host.memory_pressure_share, Missing) else host.memory_pressure_share
    swap_rate = host.swap_in_bytes / host.seconds if host.seconds > 0 else 0.0
    if pressure <= limits.memory_pressure and swap_rate <= limits.swap_bytes_per_s:
        return None
    by_swap = swap_rate / 4096 * _SWAP_PAGE_MS * step.step_ms / 1000
    waited = min(max(pressure * step.step_ms, by_swap), step.working_ms)
    if not isinstance(step.run_delay_ms, Missing):
        waited = min(waited, case.split.ms(Cause.BLOCKED))
    cost = case.worth(waited)
    if cost is None:
        return None
    machine = case.evidence.machine.memory_bytes
    own = host.peak_job_bytes >= 0.5 * machine
    return Finding(
        id="PD12.memory-pressure",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="memory is short: waiting for pages costs about {cost_ms} per step ({cost_share})",
        reasoning="the job itself holds {job_bytes} of {machine_bytes}"
        if own
        else "the job holds {job_bytes} of {machine_bytes}; the rest is with other processes",
        evidence=(
            *cost.measured("waiting for memory per step"),
            share("pressure", pressure, "of the time some task waited for memory"),
            Measurement("swap_rate", swap_rate, "bytes/s", "swapped in"),
            Measurement("job_bytes", host.peak_job_bytes, "bytes", "memory of the job, at most"),
            Measurement("machine_bytes", machine, "bytes", "memory of the machine or its control group"),
            Measurement("available_bytes", host.memory_available_bytes, "bytes", "memory left, at least"),
        ),
        fix=Fix(
            text="Let the job use less memory (fewer workers, smaller prefetch, no copy of the data set in each)"
            if own
            else "End what holds the memory, or ask for a larger limit.",
        ),
        savings=cost.savings(
            WAITED,
            "the kernel's memory pressure and 0.1 ms for each page swapped in, at most the time in which the training "
            "thread was blocked",
        ),
    )
