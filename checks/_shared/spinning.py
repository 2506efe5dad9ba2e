"""A team of threads, one of which lacks a CPU that the job's own other threads or processes have: the others spin until
it has one."""

from __future__ import annotations

from perfdoctor.api.quantities import Cause, Lack, Missing, Step

COLLAPSE = 0.8
"""Of the step, that a team can lose so: two threads beside a process that polled gained 4.3x [3.8, 4.9] on two CPUs
when it slept instead."""


def waited_ms(step: Step, lack: Lack, *, team: bool) -> float:
    """Per step, for a CPU that the job's own have. Whichever thread of a team lacks one, the others wait for it."""
    thread_ms = 0.0 if isinstance(lack.thread_ms, Missing) else lack.thread_ms
    of_team = lack.job_share * step.working_ms if team and not isinstance(lack.job_share, Missing) else 0.0
    return min(lack.fraction(Cause.OWN_THREADS) * max(thread_ms, of_team), step.working_ms)
