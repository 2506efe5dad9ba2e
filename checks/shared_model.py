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
Batches are priced on the CPU, for operators that can be called with tensors of our own: recurrent layers and custom
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

from perfdoctor.api import (
    Cause,
    Check,
    Concurrency,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Measurement,
    Missing,
    Outcome,
    Part,
    RequestPrice,
    Step,
    cannot_tell,
    clear,
    compute,
    found,
    location,
    milliseconds,
    not_applicable,
    savings,
    severity,
    share,
)

from . import _sharing_fixes


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


_HANDOVER_MS = (0.02, 0.1)
"""A request's way through a queue and a future: 0.08 ms measured on two cores with four clients. It is a judgement
how much less an idle machine takes."""
_QUEUED_MS = (0.003, 0.03)
"""The same where requests wait already: nobody has to be woken, and a batch is drawn and stacked at once."""
_LARGEST_BATCH = 32
"""Of queued requests, in a prediction: as many are timed, and answers should not wait for more."""
_BATCH_PREFERRED = 0.6
"""A judgement: processes hold a model each and need CPUs of their own, so they must save that much more."""
_MIN_MEASURED = 20
"""Fewer measured forwards do not make a mean."""
_GRAPH_SAVES = (0.05, 0.27)
"""Of a forward pass, for the graph; measured for PD08 on convolutions and on small linear layers."""


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
    case = _Case(evidence, step, seen, limits)
    findings = [*case.contention(), *case.graphs(), *case.training_mode()]
    if findings:
        return found(*findings, measurements=case.shared())
    if seen.overlapped_share < limits.overlapped:
        return clear(
            "{threads:thread calls|threads call} a model, and {overlapped} of the forwards overlap", *case.shared()
        )
    if seen.measured < _MIN_MEASURED:
        return cannot_tell("forwards of several threads overlap, but too few could be measured; let the job run longer")
    return clear(
        "{threads} threads call a model, {in_flight:forward is|forwards are} under way at once, and they wait for a "
        "lock for {blocked} of their time",
        *case.shared(),
    )


@dataclass(frozen=True, slots=True)
class _Prediction:
    """What is left of a forward's time."""

    fix: Fix
    best_ms: float
    worst_ms: float
    method: str

    def saves(self, now_ms: float) -> float:
        """Share of `now_ms`, the middle of the range."""
        return max(0.0, 1 - (self.best_ms + self.worst_ms) / 2 / max(1e-9, now_ms))


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    seen: Concurrency
    limits: Limits

    @property
    def usable(self) -> float:
        """CPUs that others leave to this rank."""
        free = self.evidence.machine.usable_cpus - self._neighbours
        return max(1.0, free / max(1, self.evidence.job.local_ranks))

    @property
    def _neighbours(self) -> float:
        host = self.evidence.host
        return 0.0 if isinstance(host, Missing) else host.others_cpus

    @property
    def intra_op(self) -> int:
        threads = self.evidence.threads
        return 1 if isinstance(threads, Missing) else threads.intra_op

    @property
    def serving(self) -> bool:
        """The step is one forward of one of the threads; else the threads work beside a training loop."""
        return self.step.boundary != "optimizer"

    @property
    def blocked(self) -> float:
        """Share of an overlapping forward that it waits, beyond what it does without company."""
        alone = self.seen.blocked_alone_share
        return max(0.0, self.seen.blocked_share - (0.0 if isinstance(alone, Missing) else alone))

    @property
    def useful(self) -> float:
        """How many threads without company would do as many forwards."""
        return self.seen.occupied_share * self.seen.least_cpu_ms / max(1e-9, self.seen.wall_ms)

    @property
    def overlapping(self) -> bool:
        return self.seen.overlapped_share >= self.limits.overlapped and self.seen.measured >= _MIN_MEASURED

    def shared(self) -> tuple[Measurement, ...]:
        seen = self.seen
        return (
            Measurement("threads", seen.threads, "count", "threads that call a model"),
            share("overlapped", seen.overlapped_share, "of forwards overlap with another thread's"),
            Measurement("in_flight", round(seen.in_flight, 1), "count", "forwards under way at once"),
            milliseconds("wall_ms", seen.wall_ms, "one forward"),
            milliseconds("cpu_ms", seen.cpu_ms, "CPU time of one overlapping forward"),
            Measurement("useful", round(self.useful, 1), "count", "threads without company that would do as much"),
            share("blocked", self.blocked, "of an overlapping forward waiting for a lock"),
            share("delay", seen.delay_share, "of an overlapping forward waiting for a CPU"),
            *(
                ()
                if isinstance(seen.backlog, Missing)
                else (Measurement("backlog", round(seen.backlog), "count", "requests queued up"),)
            ),
            Measurement("usable", self.usable, "count", "CPUs left to the job"),
        )

    # -- locks and teams ----------------------------------------------------------------------------------

    def contention(self) -> list[Finding]:
        """One finding: forwards cannot wait for the lock and for their team in the same millisecond."""
        candidates = [finding for make in (self._lock_bound, self._teams, self._serialised) for finding in make()]
        return sorted(candidates, key=lambda finding: -finding.savings.high_ms)[:1]

    def _lock_bound(self) -> list[Finding]:
        if not self.overlapping or not (self._waits_for_a_lock() or self._lock_goes_round()):
            return []
        requests = self._queued(self.seen.in_flight)
        now_ms = self.seen.wall_ms * requests / self.seen.in_flight
        prediction = self._prediction(requests, now_ms)
        whole = self._whole_ms()
        called = "one model" if self.seen.shared else "a model each"
        return self._finding(
            "gil-bound-forwards",
            prediction,
            whole,
            now_ms,
            beside_ms=self._beside_ms,
            message=f"{{threads}} threads call {called} at once and do the work of {{useful}}: {{in_flight:forward}} "
            "under way take {wall_ms} each, for {least_ms} of work",
            reasoning="an overlapping forward waits {blocked} of its time for a lock and {delay} for a CPU, and needs "
            "{cpu_ms} of CPU where {least_ms} would do: torch gives the interpreter's lock back in every operator and "
            "must get it again, and the operators are too small to fill the gap",
        )

    def _waits_for_a_lock(self) -> bool:
        """Much of the time, and not for the other threads of its team."""
        if self.blocked < self.limits.blocked:
            return False
        if self.intra_op == 1 or self.evidence.on_cuda:
            return True
        price = self.seen.price
        return not isinstance(price, Missing) and self.seen.wall_ms / max(1, price.ops) < self.limits.team_blocked_op_ms

    def _lock_goes_round(self) -> bool:
        """Always several under way, and with small operators they do no more than one could. Where neighbours keep the
        CPUs busy, threads with large operators do no more than one either, and are not to blame."""
        price = self.seen.price
        if isinstance(price, Missing) or self.useful > self.limits.useful:
            return False
        if self.seen.occupied_share < self.limits.saturated:
            return False
        return price.of(2) - price.one_ms < self.limits.small_operators * price.one_ms

    def _serialised(self) -> list[Finding]:
        """Never two at once, hardly ever none, and threads that stand before the model: the job has a lock there."""
        seen = self.seen
        if (
            not self.serving
            or seen.overlapped_share >= 0.05
            or seen.occupied_share < self.limits.occupied
            or seen.waiters < self.limits.waiters
        ):
            return []
        queued = self._queued(1 + seen.waiters)
        return self._finding(
            "serialised-forwards",
            self._prediction(queued, queued * seen.wall_ms),
            self.step.parts.forward + self.step.parts.other,
            queued * seen.wall_ms,
            message="a lock lets one of {threads} threads into the model at a time: {waiters:waits|wait} while a "
            "forward of {wall_ms} runs",
            reasoning="no two forwards overlap, yet a thread is inside the model {occupied} of the time, and the "
            "others stand in the function that calls it",
        )

    def _prediction(self, requests: float, now_ms: float) -> _Prediction | None:
        """For so many requests that take `now_ms` together: a batch, unless processes would save far more."""
        processes, price = self._processes(requests), self.seen.price
        if not self.seen.shared or isinstance(price, Missing) or not price.priced:
            return processes
        batch = self._batch(price, requests)
        if processes is None or batch.saves(now_ms) >= _BATCH_PREFERRED * processes.saves(now_ms):
            return batch
        return processes

    def _queued(self, under_way: float) -> float:
        """Requests that one batch could take: those under way and those that wait in the queue behind them."""
        backlog = self.seen.backlog
        if isinstance(backlog, Missing):
            return under_way
        return max(under_way, min(_LARGEST_BATCH, under_way + backlog))

    def _batch(self, price: RequestPrice, requests: float) -> _Prediction:
        """Time until a batch of all requests under way is done: its operators, Python once, a hand-over for each."""
        seen, alone = self.seen, self.seen.cpu_ms or self.seen.wall_ms
        known = price.priced / max(1, price.ops)
        least = max(0.0, (seen.least_cpu_ms or alone) - price.one_ms)
        mean = max(0.0, alone - price.one_ms)
        operators = price.of(requests)
        backlog = seen.backlog
        each = _HANDOVER_MS if isinstance(backlog, Missing) or backlog < 1 else _QUEUED_MS
        return _Prediction(
            _sharing_fixes.batch(self.evidence.job),
            best_ms=(operators + least) / self._running[0] + requests * each[0],
            worst_ms=(operators + mean * (known + (1 - known) * requests)) / self._running[1] + requests * each[1],
            method="the operators of one forward timed in the job for one request and for {copies} as a batch, "
            "Python's share once per batch, and "
            + ("0.02 to 0.1 ms" if each is _HANDOVER_MS else "3 to 30 us")
            + " a request for the queue",
        )

    def _processes(self, requests: float) -> _Prediction | None:
        """As many forwards at once as there are CPUs, each with an interpreter of its own."""
        count = min(math.ceil(requests), int(self.usable))
        if count < 2 or not self.seen.cpu_ms:
            return None
        rounds = max(1.0, requests / count)
        return _Prediction(
            _sharing_fixes.processes(count),
            best_ms=self.seen.least_cpu_ms * rounds / self._running[0] + _HANDOVER_MS[0],
            worst_ms=self.seen.cpu_ms * rounds / self._running[1] + _HANDOVER_MS[1],
            method="the CPU time of the fastest and of the mean measured forward, on {usable:CPU}",
        )

    @property
    def _running(self) -> tuple[float, float]:
        """Share of the time that a thread has a CPU once the fix is in, at best and at worst. At worst the wait for
        CPUs stays as it is; at best only the neighbours' part of it."""
        cpus = self.evidence.machine.usable_cpus
        neighbours = min(1.0, self._neighbours / cpus) if cpus > 0 else 0.0
        return max(0.05, 1 - neighbours * self.seen.delay_share), max(0.05, 1 - self.seen.delay_share)

    def _whole_ms(self) -> float:
        """What of a step those forwards can be billed for."""
        parts = self.step.parts
        if self.serving:
            return parts.forward
        if self.evidence.on_cuda:
            return self.blocked * parts.forward
        split = compute(self.evidence)
        return 0.0 if isinstance(split, Missing) else split.ms(Cause.BLOCKED)

    @property
    def _beside_ms(self) -> float:
        """Of a step, what a thread does between two forwards while requests are queued up: a batch does at best that,
        too, once for all of them. Without a queue it may be waiting for a request."""
        backlog = self.seen.backlog
        return self.step.parts.other if self.serving and not isinstance(backlog, Missing) and backlog >= 1 else 0.0

    def _finding(
        self,
        name: str,
        prediction: _Prediction | None,
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
        if high / self.step.step_ms < self.limits.min_share:
            return []
        seen, price = self.seen, self.seen.price
        priced = not isinstance(price, Missing)
        return [
            Finding(
                id=f"PD06.{name}",
                severity=severity(high / self.step.step_ms, self.limits.min_share, self.limits.error_share),
                confidence=Confidence.HIGH if priced and self.serving else Confidence.MEDIUM,
                message=message,
                reasoning=reasoning,
                evidence=(
                    *self.shared(),
                    milliseconds("least_ms", seen.least_cpu_ms, "CPU time of the fastest measured forward"),
                    Measurement("waiters", round(seen.waiters, 1), "count", "threads that wait before the model"),
                    share("occupied", seen.occupied_share, "of the time inside forwards, all threads together"),
                    *_priced(price),
                ),
                location=location(seen.site),
                fix=prediction.fix,
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=max(high, whole * self.blocked),
                    # Beside a training loop nobody knows what the loop does with a thread that is done earlier.
                    low=whole * worst if self.serving else 0.0,
                    high=high,
                    method=prediction.method,
                ),
            )
        ]

    def _teams(self) -> list[Finding]:
        """Every thread with intra-op threads of its own, more than there are CPUs, when one each is timed faster."""
        price, ops = self.seen.price, self.evidence.ops
        demand = self.seen.in_flight * self.intra_op
        if not self.overlapping or isinstance(price, Missing) or self.intra_op < 2 or price.rounds < 2:
            return []
        if not isinstance(ops, Missing) and ops.thread_prices:
            return []  # PD13 has timed the loop's operators with each number of threads
        if demand <= math.ceil(self.usable) or price.team_ms <= 0:
            return []
        gain = 1 - price.single_ms / price.team_ms
        high = gain * price.priced / max(1, price.ops) * self._whole_ms()
        if gain < self.limits.team_gain or high / self.step.step_ms < self.limits.min_share:
            return []
        return [
            Finding(
                id="PD06.oversubscribed-teams",
                severity=severity(high / self.step.step_ms, self.limits.min_share, self.limits.error_share),
                confidence=Confidence.MEDIUM,
                message="{in_flight:forward} at once, each with {intra_op:intra-op thread}, share {usable:CPU}: "
                "their operators take {slower} of what they take with one thread each",
                reasoning="each thread that calls torch has an OpenMP team of its own, and a team waits for its last",
                evidence=(
                    *self.shared(),
                    Measurement("intra_op", self.intra_op, "count", "intra-op threads of each"),
                    Measurement(
                        "slower", price.team_ms / max(1e-9, price.single_ms), "ratio", "with teams over without"
                    ),
                    *_priced(price),
                ),
                location=location(self.seen.site),
                fix=_sharing_fixes.fewer_threads(max(1, int(self.usable / self.seen.in_flight))),
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=high,
                    low=0.5 * high if self.serving else 0.0,
                    high=high,
                    method="the operators of one forward timed beside the job's other threads, with all intra-op "
                    "threads and with one; the rest of the forward gains half of that or all",
                ),
            )
        ]

    # -- what threads do not inherit ----------------------------------------------------------------------

    def graphs(self) -> list[Finding]:
        """Gradients on in the threads: `no_grad` around their start does not reach them."""
        seen = self.seen
        if not seen.graph_nobody_uses or not self.serving:
            return []
        low, high = (part * seen.ungraded_share * self.step.parts.forward for part in _GRAPH_SAVES)
        if high / self.step.step_ms < self.limits.min_share / 2:
            return []
        return [
            Finding(
                id="PD06.grad-in-threads",
                # A range from other machines is no reason for an error.
                severity=severity(high / self.step.step_ms, self.limits.min_share, 2.0),
                confidence=Confidence.MEDIUM,
                message="{ungraded} of the forwards in {threads} threads record a graph that nobody uses",
                reasoning="the model is in `eval()` mode, gradients are on in those threads, and no thread runs a "
                "backward pass; `no_grad` and `inference_mode` hold for the thread that enters them only",
                evidence=(share("ungraded", seen.ungraded_share, "of forward time with a graph"), *self.shared()),
                location=location(seen.site),
                fix=Fix(
                    text="Enter inference mode in the function that the threads run, not around their start.",
                    code="def answer(request):\n    with torch.inference_mode():\n        return model(request)",
                    risk="Tensors made there cannot take part in a backward pass; use `torch.no_grad()` if they must.",
                ),
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=high,
                    low=low,
                    high=high,
                    method="recording a graph takes 5 to 27 % of a forward pass; the smaller the kernels, the more",
                ),
            )
        ]

    def training_mode(self) -> list[Finding]:
        """Dropout and batch norm of one module, in training mode, from several threads that do not train."""
        seen = self.seen
        overlapped = seen.overlapped_share * seen.forwards
        if not seen.shared or seen.backwards or not self.overlapping or 2 * seen.in_training < overlapped:
            return []
        return [
            Finding(
                id="PD06.train-mode-shared",
                severity=severity(0.0, self.limits.min_share, self.limits.error_share),
                confidence=Confidence.MEDIUM,
                message="{in_training:overlapping forward} ran one module in training mode, and no thread trains it",
                reasoning="dropout then changes the answers, and batch norm updates its statistics from several "
                "threads, one over the other",
                evidence=(
                    Measurement("in_training", seen.in_training, "count", "overlapping forwards in training mode"),
                    *self.shared(),
                ),
                location=location(seen.site),
                fix=Fix(text="Switch to evaluation mode before the threads start.", code="model.eval()"),
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=0.0,
                    low=0.0,
                    high=0.0,
                    method="a matter of right answers; the time was not measured",
                ),
            )
        ]


def _priced(price: RequestPrice | Missing) -> tuple[Measurement, ...]:
    if isinstance(price, Missing):
        return ()
    return (
        Measurement("copies", price.copies, "count", "requests in the timed batch"),
        milliseconds("one_ms", price.one_ms, "timed operators of one forward"),
        milliseconds("batch_ms", price.batch_ms, "the same operators for the batch"),
    )


CHECK = Check(code="PD06", name="shared-model", title="one model, several threads", limits=Limits(), examine=examine)
