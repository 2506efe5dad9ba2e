"""One model, several threads: forwards that wait for each other instead of running side by side.

What it looks at
----------------
Outermost forwards on all threads of the process: how many are under way at once, their time by the clock against the
CPU time and run delay of their thread, what waits for a lock around the model, intra-op threads times forwards under
way against the usable CPUs, gradients and training mode in those threads. The operators of one forward are timed in
the job for one request and for a batch.

Why it costs time
-----------------
Threads share one interpreter lock. torch gives it back inside every operator and must get it again after; with small
operators the threads do little else. Four threads that called one network of 16 layers made 3,800 forwards a second
here, one thread alone 8,700, and four threads that leave the model to a fifth, which batches, 9,500. Each thread also
has an OpenMP team of its own: eight threads with eight intra-op threads are 64 on the CPUs.

Example
-------
    with ThreadPoolExecutor(8) as pool:
        pool.map(model, requests)      # batch 1 each, all after the same interpreter lock

How to fix
----------
Let one thread own the model and serve what has queued up as one batch, or give each process a model. Divide the CPUs
among the threads that compute. Enter `inference_mode` inside each thread: it holds for one thread only.

When it stays silent
--------------------
When one thread calls the model; when forwards seldom overlap; when they overlap and their kernels, which run without
the interpreter lock, take most of the time: then threads help. A pool that only loads data calls no model.

Limits
------
Batches are timed on the CPU, for operators that can be called with tensors of our own: recurrent layers and custom
ones count as not helped by a batch. In a training loop with threads beside it only the time that the loop itself is
blocked can be saved. The threads of nn.DataParallel are PD01's to judge. Nothing is known of models inside compiled
functions. A lock is told by where its waiters stand: in the function that calls the model.

References
----------
- Deeplearning4j, "How to debug performance issues", step 6
- PyTorch documentation, "CPU threading and TorchScript inference"
- pytorch/pytorch#15432, #26948, triton-inference-server/server#6896: threads that make inference slower
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing, RequestTiming

from . import fixes
from .concurrent_forwards import MIN_MEASURED, Forwards
from .predictions import Prediction, for_requests, queued
from .thread_state import graphs, training_mode


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.10
    """Share of the step that a fix may save, at most: predictions are wide, and less is not worth a redesign."""
    error_share: float = 0.40
    """A judgement: threads then hardly help, or harm."""
    overlapped: float = 0.20
    """Share of forwards that overlap: with fewer, threads seldom meet."""
    blocked: float = 0.20
    """Share of an overlapping forward spent waiting for a lock; kernels of a millisecond leave 2 to 10 %."""
    useful: float = 1.25
    """Threads' worth of work, up to which several threads are worth no more than one; the measure errs by 10 %."""
    saturated: float = 1.5
    """Forwards under way on average, also while there are none: below it, threads are idle because nobody asks."""
    small_operators: float = 0.5
    """What a second request adds to the operators' time, below which most of it is overhead; large kernels double."""
    team_blocked_op_ms: float = 0.3
    """With several intra-op threads a wait may be for their team. Operators shorter than this are too short for it."""
    team_gain: float = 0.20
    """What one intra-op thread must save of the operators' time: beside other threads timing is noisy."""
    occupied: float = 0.70
    """Share of the time in which a thread is inside the model though no two are: a lock's doing."""
    waiters: float = 0.5
    """Threads that stand before the model per measured forward."""


_OVERLAP_BY_CHANCE = 0.05
"""A judgement: up to this share of overlapping forwards one lets the other in, and they do not run side by side."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """One thread, several that seldom meet, or several that cost: teams, locks, graphs, training mode."""
    step, seen = evidence.step, evidence.concurrency
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(seen, Missing):
        return cannot_tell(f"threads that call the model were not counted: {seen}")
    if seen.threads < 2:
        return clear(
            "one thread calls the model: none of its {forwards:forward} met another",
            Measurement("forwards", seen.forwards, "count", "forwards in steady steps"),
        )
    if not isinstance(evidence.backend, Missing) and evidence.backend.data_parallel:
        return not_applicable("the threads are those of nn.DataParallel, which PD01 judges")
    case = Forwards(evidence, step, seen)
    findings = [*_contention(case, limits), *graphs(case, limits), *training_mode(case, limits)]
    if findings:
        return found(*findings, measurements=case.shared())
    if seen.overlapped_share < limits.overlapped:
        return clear(
            "{threads:thread calls|threads call} a model, and {overlapped} of the forwards overlap", *case.shared()
        )
    if seen.measured < MIN_MEASURED:
        return cannot_tell("forwards of several threads overlap, but too few could be measured; let the job run longer")
    return clear(
        "{threads} threads call a model, {in_flight:forward is|forwards are} under way at once, and they wait for a "
        "lock for {blocked} of their time",
        *case.shared(),
    )


def _contention(case: Forwards, limits: Limits) -> list[Finding]:
    """One finding: forwards cannot wait for the lock and for their team in the same millisecond."""
    candidates = [finding for make in (_lock_bound, _teams, _serialised) for finding in make(case, limits)]
    return sorted(candidates, key=lambda finding: -finding.savings.high_ms)[:1]


def _lock_bound(case: Forwards, limits: Limits) -> list[Finding]:
    if not case.overlap(limits.overlapped) or not (_waits_for_a_lock(case, limits) or _lock_goes_round(case, limits)):
        return []
    requests = queued(case, case.seen.in_flight)
    now_ms = case.seen.wall_ms * requests / case.seen.in_flight
    prediction = for_requests(case, requests, now_ms)
    whole = case.whole_ms
    called = "one model" if case.seen.shared else "a model each"
    return _finding(
        case,
        limits,
        "gil-bound-forwards",
        prediction,
        whole,
        now_ms,
        beside_ms=case.beside_ms,
        message=f"{{threads}} threads call {called} at once and do the work of {{useful}}: {{in_flight:forward}} "
        "under way take {wall_ms} each, for {least_ms} of work",
        reasoning="an overlapping forward waits {blocked} of its time for a lock and {delay} for a CPU, and needs "
        "{cpu_ms} of CPU where {least_ms} would do: torch gives the interpreter's lock back in every operator and "
        "must get it again, and the operators are too small to fill the gap",
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


def _serialised(case: Forwards, limits: Limits) -> list[Finding]:
    """Never two at once, hardly ever none, and threads that stand before the model: the job has a lock there."""
    seen = case.seen
    if (
        not case.serving
        or seen.overlapped_share >= _OVERLAP_BY_CHANCE
        or seen.occupied_share < limits.occupied
        or seen.waiters < limits.waiters
    ):
        return []
    requests = queued(case, 1 + seen.waiters)
    return _finding(
        case,
        limits,
        "serialised-forwards",
        for_requests(case, requests, requests * seen.wall_ms),
        case.step.parts.forward + case.step.parts.other,
        requests * seen.wall_ms,
        message="a lock lets one of {threads} threads into the model at a time: {waiters:waits|wait} while a "
        "forward of {wall_ms} runs",
        reasoning="no two forwards overlap, yet a thread is inside the model {occupied} of the time, and the "
        "others stand in the function that calls it",
    )


def _finding(
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
) -> list[Finding]:
    """The finding, if what its fix may save of `whole` (at best also of `beside_ms`) is worth one; what it is for
    takes `forward_ms` now."""
    if prediction is None or forward_ms <= 0:
        return []
    best, worst = (max(0.0, 1 - ms / forward_ms) for ms in (prediction.best_ms, prediction.worst_ms))
    high = (whole + beside_ms) * best
    if high / case.step.step_ms < limits.min_share:
        return []
    seen, timing = case.seen, case.seen.timing
    timed = not isinstance(timing, Missing)
    return [
        Finding(
            id=f"PD06.{name}",
            severity=severity(high / case.step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.HIGH if timed and case.serving else Confidence.MEDIUM,
            message=message,
            reasoning=reasoning,
            evidence=(
                *case.shared(),
                milliseconds("least_ms", seen.least_cpu_ms, "CPU time of the fastest measured forward"),
                Measurement("waiters", round(seen.waiters, 1), "count", "threads that wait before the model"),
                share("occupied", seen.occupied_share, "of the time inside forwards, all threads together"),
                *_timed(timing),
            ),
            location=location(seen.site),
            fix=prediction.fix,
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=max(high, whole * case.blocked),
                # Beside a training loop nobody knows what the loop does with a thread that is done earlier.
                low=whole * worst if case.serving else 0.0,
                high=high,
                method=prediction.method,
            ),
        )
    ]


def _teams(case: Forwards, limits: Limits) -> list[Finding]:
    """Every thread with intra-op threads of its own, more than there are CPUs, when one each is timed faster."""
    timing, ops = case.seen.timing, case.evidence.ops
    demand = case.seen.in_flight * case.intra_op
    if not case.overlap(limits.overlapped) or isinstance(timing, Missing) or case.intra_op < 2 or timing.rounds < 2:
        return []
    if not isinstance(ops, Missing) and ops.thread_timings:
        return []  # PD13 has timed the loop's operators with each number of threads
    if demand <= math.ceil(case.usable) or timing.team_ms <= 0:
        return []
    gain = 1 - timing.single_ms / timing.team_ms
    high = gain * timing.timed / max(1, timing.ops) * case.whole_ms
    if gain < limits.team_gain or high / case.step.step_ms < limits.min_share:
        return []
    return [
        Finding(
            id="PD06.oversubscribed-teams",
            severity=severity(high / case.step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="{in_flight:forward} at once, each with {intra_op:intra-op thread}, share {usable:CPU}: "
            "their operators take {slower} of what they take with one thread each",
            reasoning="each thread that calls torch has an OpenMP team of its own, and a team waits for its last",
            evidence=(
                *case.shared(),
                Measurement("intra_op", case.intra_op, "count", "intra-op threads of each"),
                Measurement("slower", timing.team_ms / max(1e-9, timing.single_ms), "ratio", "with teams over without"),
                *_timed(timing),
            ),
            location=location(case.seen.site),
            fix=fixes.fewer_threads(max(1, int(case.usable / case.seen.in_flight))),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=high,
                low=0.5 * high if case.serving else 0.0,
                high=high,
                method="the operators of one forward timed beside the job's other threads, with all intra-op "
                "threads and with one; the rest of the forward gains half of that or all",
            ),
        )
    ]


def _timed(timing: RequestTiming | Missing) -> tuple[Measurement, ...]:
    if isinstance(timing, Missing):
        return ()
    return (
        Measurement("copies", timing.copies, "count", "requests in the timed batch"),
        milliseconds("one_ms", timing.one_ms, "timed operators of one forward"),
        milliseconds("batch_ms", timing.batch_ms, "the same operators for the batch"),
    )


CHECK = Check(code="PD06", name="shared-model", title="one model, several threads", limits=Limits(), examine=examine)
