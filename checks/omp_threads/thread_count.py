"""Another number of threads: when timed operators say that it pays, or ranks wait for CPUs."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import PASSES_KEEP
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
from perfdoctor.api.quantities import Cause, Missing

from .case import Case, fewer_threads

_TIMING_KEEPS = (0.5, 1.0)
"""Share of the timed operators' gain that the whole step keeps: small operators scale less than large ones."""

_IDLE = 0.5
"""Of the CPUs that more threads would take: where workers or neighbours have them, the threads wait for each other."""


_BESIDE = 0.1
"""CPUs that other processes kept busy. Each time one of them takes a CPU a team waits: beside a few seconds of
compiling two threads were timed at 1.3 and 1.8 times what one took, in programs that they make 1.4 and 1.6 times as
fast."""


@dataclass(frozen=True, slots=True)
class _Words:
    id: str
    message: str
    reasoning: str
    fix: Fix
    doubtful: bool = False
    """Other processes had a part in it, which may be over now."""


def thread_count(case: Case) -> Finding | None:
    """More threads than the job or its caller chose are an opportunity: there may be a reason, which is not seen."""
    gain, threads, limits = case.gain, case.threads, case.limits
    if isinstance(gain, Missing):
        return None
    more = gain.best.threads - threads.intra_op
    chosen = more > 0 and not threads.torchrun_default
    if chosen and (case.idle is None or case.idle < _IDLE * case.ranks * more):
        return None
    cost = Cost(case.step, gain.saved_ms)
    if gain.best.threads == threads.intra_op or cost.share < limits.min_share:
        return None
    words = _words(case, gain.best.threads)
    return Finding(
        id=words.id,
        severity=Severity.NOTE if chosen or words.doubtful else cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if gain.fraction > 0.3 else Confidence.MEDIUM,
        message=words.message
        + (": forward and backward have" if gain.of_passes else ": operators have")
        + " a speed-up of {slower} with {best}",
        reasoning=words.reasoning,
        evidence=(
            *case.shared(),
            Measurement("best", gain.best.threads, "count", "best number of threads found"),
            Measurement("slower", gain.times, "ratio", "what was timed, now over the best"),
            share("throttled", case.throttled, "of quota periods throttled"),
        ),
        location=location(threads.set_at),
        fix=words.fix,
        savings=cost.savings(
            PASSES_KEEP, "the job's own passes, made again with each number of threads after its last step"
        )
        if gain.of_passes
        else cost.savings(
            _TIMING_KEEPS,
            "the job's largest operators timed in its own process with each number of threads; the rest of the step "
            "gains half of that or all",
        ),
    )


def _words(case: Case, best: int) -> _Words:
    if best > case.threads.intra_op and not case.threads.torchrun_default:
        return _Words(
            "PD13.idle-cpus",
            "{threads:thread computes|threads compute} on {usable:usable CPU}, of which {idle} idle",
            "the largest operators were timed with each number of threads while the job ran",
            fewer_threads(case, best),
        )
    if best > case.threads.intra_op:
        return _Words(
            "PD13.torchrun-single-thread",
            "torchrun gave each rank one thread of {usable:usable CPU}",
            "OMP_NUM_THREADS was not set, so torchrun set it to 1; {usable:CPU serves|CPUs serve} {ranks:rank}",
            fewer_threads(case, best, program="torchrun ..."),
        )
    fewer = fewer_threads(case, best)
    if case.lack.throttled:
        return _Words(
            "PD13.more-threads-than-quota",
            f"{case.team} share a quota of {{usable:CPU}}",
            "the job was throttled in {throttled} of its periods; OpenMP does not read the quota",
            fewer,
        )
    if case.lack.team_too_large:
        return _Words(
            "PD13.too-many-threads",
            f"{case.team} on {{usable:usable CPU}}",
            "threads that find no CPU keep the others waiting at each operator's end",
            fewer,
        )
    if case.delay is not None and case.delay > case.limits.run_delay:
        # Unseen processes count: somebody took the CPUs, and the team alone fits them.
        whom = "the job's own other threads and workers" if case.lack.other_processes is False else "other processes"
        return _Words(
            "PD13.spin-collapse",
            f"{{threads:thread competes|threads compete}} with {whom} for {{usable:CPU}}",
            "there are as many threads as CPUs, so OpenMP threads spin while waiting for each other, and the job waits "
            "for a CPU for {delay} of its runnable time",
            fewer_threads(case, best, asleep=True),
        )
    beside = not isinstance(case.evidence.host, Missing) and case.evidence.host.others_cpus > _BESIDE
    return _Words(
        "PD13.too-many-threads",
        "{threads:thread is|threads are} too many for operators this small",
        "other processes ran meanwhile, and a team waits whenever one of them takes a CPU: with the machine to itself "
        "the job may be faster as it is"
        if beside
        else "starting and joining threads takes longer than they save",
        fewer,
        doubtful=beside,
    )


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
