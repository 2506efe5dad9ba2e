"""Forwards that wait for each other instead of running side by side: for the interpreter's lock, the job's, or CPUs."""

from __future__ import annotations

import math

from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, location, milliseconds, savings, share
from perfdoctor.api.quantities import Missing, RequestTiming

from .case import Forwards, Limits
from .fixes import fewer_threads
from .predictions import Prediction, for_requests, queued


def blocked_forwards(
    case: Forwards,
    limits: Limits,
    name: str,
    prediction: Prediction | None,
    whole: float,
    forward_ms: float,
    *,
    message: str,
    reasoning: str,
    beside_ms: float = 0.0,
) -> Finding | None:
    """The finding, if what its fix may save of `whole` (at best also of `beside_ms`) is worth one; what it is for
    takes `forward_ms` now."""
    if prediction is None or forward_ms <= 0:
        return None
    best, worst = (max(0.0, 1 - ms / forward_ms) for ms in (prediction.best_ms, prediction.worst_ms))
    saved = Cost(case.step, (whole + beside_ms) * best)
    if saved.share < limits.min_share:
        return None
    seen, timing = case.seen, case.seen.timing
    timed = not isinstance(timing, Missing)
    return Finding(
        id=f"PD06.{name}",
        severity=saved.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if timed and case.serving else Confidence.MEDIUM,
        message=message,
        reasoning=reasoning,
        evidence=(
            *case.shared(),
            milliseconds("least_ms", seen.least_cpu_ms, "CPU time of the fastest measured forward pass"),
            Measurement("waiters", round(seen.waiters, 1), "count", "threads that wait before the model"),
            share("occupied", seen.occupied_share, "of the time inside forward passes, all threads together"),
            *timed_operators(timing),
        ),
        location=location(seen.site),
        fix=prediction.fix,
        savings=savings(
            case.step,
            # Beside a training loop nobody knows what the loop does with a thread that is done earlier.
            whole * worst if case.serving else 0.0,
            saved.ms,
            prediction.method,
            ceiling=max(saved.ms, whole * case.blocked),
        ),
    )


def timed_operators(timing: RequestTiming | Missing) -> tuple[Measurement, ...]:
    """What one request and a batch of them take."""
    if isinstance(timing, Missing):
        return ()
    return (
        Measurement("copies", timing.copies, "count", "requests in the timed batch"),
        milliseconds("one_ms", timing.one_ms, "timed operators of one forward pass"),
        milliseconds("batch_ms", timing.batch_ms, "the same operators for the batch"),
    )


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


_OVERLAP_BY_CHANCE = 0.05
"""A judgement: up to this share of overlapping forwards one lets the other in, and they do not run side by side."""


def serialised(case: Forwards, limits: Limits) -> Finding | None:
    """Never two forwards at once, hardly ever none, and threads before the model: the job has a lock there."""
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


def oversubscribed_teams(case: Forwards, limits: Limits) -> Finding | None:
    """Threads with intra-op threads of their own, more than there are CPUs: when one each is timed faster."""
    timing, ops = case.seen.timing, case.evidence.ops
    demand = case.seen.in_flight * case.intra_op
    if not case.overlap(limits.overlapped) or isinstance(timing, Missing) or case.intra_op < 2 or timing.rounds < 2:
        return None
    if not isinstance(ops, Missing) and ops.thread_timings:
        return None  # PD13 has timed the loop's operators with each number of threads
    if demand <= math.ceil(case.usable) or timing.team_ms <= 0:
        return None
    gain = 1 - timing.single_ms / timing.team_ms
    saved = Cost(case.step, gain * timing.timed / max(1, timing.ops) * case.whole_ms)
    if gain < limits.team_gain or saved.share < limits.min_share:
        return None
    return Finding(
        id="PD06.oversubscribed-teams",
        severity=saved.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="{in_flight:forward pass} at once with {intra_op:intra-op thread} each share "
        "{usable:CPU}: speed-up {slower} with one",
        reasoning="each thread that calls torch has an OpenMP team of its own, and a team waits for its last",
        evidence=(
            *case.shared(),
            Measurement("intra_op", case.intra_op, "count", "intra-op threads of each"),
            Measurement("slower", timing.team_ms / max(1e-9, timing.single_ms), "ratio", "with teams over without"),
            *timed_operators(timing),
        ),
        location=location(case.seen.site),
        fix=fewer_threads(max(1, int(case.usable / case.seen.in_flight))),
        savings=saved.savings(
            (0.5 if case.serving else 0.0, 1.0),
            "the operators of one forward pass timed beside the job's other threads, with all intra-op threads and "
            "with one; the rest of it gains half of that or all",
        ),
    )
