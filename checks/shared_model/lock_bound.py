"""Forwards that wait for the interpreter's lock."""

from __future__ import annotations

from perfdoctor.api.findings import Finding
from perfdoctor.api.quantities import Missing

from .blocked import blocked_forwards
from .concurrent_forwards import Forwards
from .limits import Limits
from .predictions import for_requests, queued


def lock_bound(case: Forwards, limits: Limits) -> Finding | None:
    """By the time that overlapping forwards wait for it, or by threads that do no more than one could."""
    if not case.overlap(limits.overlapped) or not (_waits_for_a_lock(case, limits) or _lock_goes_round(case, limits)):
        return None
    requests = queued(case, case.seen.in_flight)
    now_ms = case.seen.wall_ms * requests / case.seen.in_flight
    called = "one model" if case.seen.shared else "a model each"
    return blocked_forwards(
        case,
        limits,
        "gil-bound-forwards",
        for_requests(case, requests, now_ms),
        case.whole_ms,
        now_ms,
        beside_ms=case.beside_ms,
        message=f"{{threads}} threads that call {called} do the work of {{useful}}: they wait for the GIL",
        reasoning="{in_flight:forward pass} under way take {wall_ms} each for {least_ms} of work; each "
        "waits {blocked} of its time for a lock and {delay} for a CPU, and needs {cpu_ms} of CPU, because torch "
        "releases the GIL in every operator and must get it again, and the operators are too small to fill the gap",
    )


def _waits_for_a_lock(case: Forwards, limits: Limits) -> bool:
    """Much of the time, and not for the other threads of its team."""
    if case.blocked < limits.blocked:
        return False
    if case.intra_op == 1 or case.evidence.on_cuda:
        return True
    timing = case.seen.timing
    return not isinstance(timing, Missing) and case.seen.wall_ms / max(1, timing.ops) < limits.team_blocked_op_ms


def _lock_goes_round(case: Forwards, limits: Limits) -> bool:
    """Always several under way, and with small operators they do no more than one could. Where neighbours keep the
    CPUs busy, threads with large operators do no more than one either, and are not to blame."""
    timing = case.seen.timing
    if isinstance(timing, Missing) or case.useful > limits.useful:
        return False
    if case.seen.occupied_share < limits.saturated:
        return False
    return timing.of(2) - timing.one_ms < limits.small_operators * timing.one_ms
