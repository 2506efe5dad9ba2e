"""Every thread with intra-op threads of its own, more than there are CPUs."""

from __future__ import annotations

import math

from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, location
from perfdoctor.api.quantities import Missing

from .case import Forwards, Limits
from .fixes import fewer_threads
from .locks import timed_operators


def oversubscribed_teams(case: Forwards, limits: Limits) -> Finding | None:
    """When one intra-op thread each is timed faster."""
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
