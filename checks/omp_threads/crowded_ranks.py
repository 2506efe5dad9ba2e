"""Ranks that have more threads than CPUs, and wait for them."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, location, milliseconds, savings, share
from perfdoctor.api.quantities import Cause, Missing

from .case import Case, fewer_threads

_WAITS_KEEP = (1.0, 2.5)
"""What threads that fit save, over the training thread's own wait for a CPU: it waits for its team as well, whose
threads lack CPUs too. 1.6 to 2.1 in three launches of two ranks with two threads each on two CPUs."""


def crowded_ranks(case: Case) -> Finding | None:
    """A rank's operators do not show it when they are timed while the other ranks wait at a collective."""
    fits, waits, limits = int(case.usable) // case.ranks, case.lack.thread_ms, case.limits
    if case.ranks == 1 or fits < 1 or not case.lack.team_too_large or isinstance(waits, Missing):
        return None
    waited = Cost(case.step, waits * case.lack.fraction(Cause.OWN_THREADS))
    if waited.share < limits.min_share:
        return None
    low, high = (fraction * waited.ms for fraction in _WAITS_KEEP)
    return Finding(
        id="PD13.too-many-threads",
        severity=waited.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message=f"{case.team} on {{usable:usable CPU}}: the training thread waits {{waited_ms}} per step for a CPU",
        reasoning="that is {waited_share} of the step; threads that find no CPU keep the others waiting at each "
        "operator's end",
        evidence=(
            *case.shared(),
            milliseconds("waited_ms", waited.ms, "of the training thread for a CPU that the job itself had"),
            share("waited_share", waited.share, "of the step"),
            Measurement("best", fits, "count", "threads per rank for which there are CPUs"),
        ),
        location=location(case.threads.set_at),
        fix=fewer_threads(case, fits),
        savings=savings(
            case.step,
            low,
            high,
            "the training thread's wait for a CPU, and up to 1.5 times as much for its team, whose threads wait too",
        ),
    )
