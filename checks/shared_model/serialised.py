"""Never two forwards at once, hardly ever none, and threads that stand before the model: the job has a lock there."""

from __future__ import annotations

from perfdoctor.api.findings import Finding

from .blocked import blocked_forwards
from .concurrent_forwards import Forwards
from .limits import Limits
from .predictions import for_requests, queued

_OVERLAP_BY_CHANCE = 0.05
"""A judgement: up to this share of overlapping forwards one lets the other in, and they do not run side by side."""


def serialised(case: Forwards, limits: Limits) -> Finding | None:
    """By the threads that wait while one computes."""
    seen = case.seen
    if (
        not case.serving
        or seen.overlapped_share >= _OVERLAP_BY_CHANCE
        or seen.occupied_share < limits.occupied
        or seen.waiters < limits.waiters
    ):
        return None
    requests = queued(case, 1 + seen.waiters)
    return blocked_forwards(
        case,
        limits,
        "serialised-forwards",
        for_requests(case, requests, requests * seen.wall_ms),
        case.step.parts.forward + case.step.parts.other,
        requests * seen.wall_ms,
        message="a lock lets one of {threads} threads into the model at a time, and {waiters:waits|wait}",
        reasoning="a forward pass takes {wall_ms}, and no two overlap; a thread is inside the model {occupied} of the "
        "time, and the others stand in the function that calls it",
    )
