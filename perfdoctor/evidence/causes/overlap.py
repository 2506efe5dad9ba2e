"""The overlap model of loading: how long a step takes when batches are made beside it.

Training a step keeps S ms of wall time and S_cpu of CPU; making a batch takes L ms, L_cpu of them on a CPU. With
w workers the step can be no shorter than

    max(S, L / w, (S_cpu + L_cpu) / C) + T

where C is the number of CPUs that this rank has and T what handing a batch over costs the training process. This is
the min(F, P, G) of DS-Analyzer (Mohan et al., VLDB 2021), with the CPU as one more resource. It is reached where all
batches and steps are alike; what pauses and slow batches make of it, and workers that take a CPU from a team of OpenMP
threads, the queue tells when it is played through (`played`) with the times of single batches and steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..model import Evidence, Fetch, Loader, Missing, Step
from .by_loader import Beside, beside, own_wait_ms
from .played import Queue, Turn, play

HANDOVER_MS = (0.3, 2.0)
"""T for one batch, measured: 0.3 ms at best, 1 to 2 ms through a busy queue (437 bytes, one tensor)."""
COPY_MS_PER_MIB = (0.1, 0.5)
"""On top, for touching the batch's shared-memory pages in the training process: 2 to 10 GB/s."""
CROWDED = (0.15, 0.0)
"""At best and at worst: what a team of threads keeps of its speed while a worker has one of its CPUs. A perceptron, a
convolutional network and a transformer, steps of 2 to 20 ms on two threads and two CPUs, beside one worker that makes
batches in 4, 12 and 30 ms: the step was 0.99 to 1.37 times as long as with batches made in between (12 pairs)."""
_DISTURBED = (1.1, 1.25)
"""At worst both sides disturb each other by a tenth (caches, memory bandwidth, bursts), and where threads of a team
wait for one another by a quarter: the same twelve pairs."""
_MOST_WORKERS = 16
_MARGIN = 1.2
"""Workers are dimensioned for 20 % more than the mean, because batches do not all take the mean time."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The loading of one loader, per step, ms."""

    step_ms: float
    wait_ms: float
    make_ms: float
    """L."""
    make_cpu_ms: float
    train_ms: float
    """S."""
    train_cpu_ms: float
    """Spinning included: a thread that spins has its CPU."""
    usable_cpus: float
    """Of the machine, those for this rank."""
    handover_ms: tuple[float, float]
    alone_ms: float = 0.0
    """Of S, in which one thread is at work: collections, checkpoints, logging; the wait for other loaders."""
    least_ms: float = 0.0
    """No step is shorter than other loaders' workers take for its batches."""
    turns: tuple[Turn, ...] = ()
    """Training, step by step; all alike where that is not known."""
    each_ms: tuple[float, ...] = ()
    """L, batch by batch; all alike where that is not known."""
    prefetch: int = 2

    @property
    def team(self) -> float:
        """CPUs that training keeps while it computes."""
        return max(0.0, self.train_cpu_ms - self.alone_ms) / max(self.train_ms - self.alone_ms, 0.1)

    @property
    def busy(self) -> float:
        """CPUs that one worker keeps."""
        return self.make_cpu_ms / self.make_ms if self.make_ms > 0 else 1.0

    def is_crowded(self, workers: int) -> bool:
        """Whether that many workers would take CPUs from a team of several threads."""
        at_work = min(float(workers), self.make_ms / max(self.train_ms, 0.1))
        return self._queue(workers, 1.0).is_crowded(at_work)

    def workers(self) -> int:
        """As many as keep up, and no more than there are CPUs for; waiting for storage needs none."""
        wanted = math.ceil(_MARGIN * self.make_ms / max(self.train_ms, 0.1))
        spare = max(1.0, self.usable_cpus - min(self.usable_cpus - 1, self.team))
        affordable = math.floor(spare / max(self.busy, spare / _MOST_WORKERS))
        return max(1, min(wanted, affordable, _MOST_WORKERS))

    def step_with(self, workers: int) -> tuple[float, float]:
        """The step with that many workers: at best, at worst."""
        turns = self.turns or (Turn(self.train_ms - self.alone_ms, self.alone_ms),)
        least, most = (
            max(self.least_ms, play(self.each_ms or (self.make_ms,), turns, self._queue(workers, kept)))
            for kept in CROWDED
        )
        best, worst = self.handover_ms
        return least + best, _DISTURBED[self.is_crowded(workers)] * most + worst

    def saved_with(self, workers: int) -> tuple[float, float]:
        """What that saves per step: at worst, at best; below zero where workers would hurt."""
        best, worst = self.step_with(workers)
        return self.step_ms - worst, self.step_ms - best

    def with_one_thread(self, times: float) -> Overlap:
        """The same with computing on one thread, for which it takes `times` as long."""
        computing = (self.train_ms - self.alone_ms) * times
        longer = computing + self.alone_ms
        turns = tuple(replace(turn, computing_ms=turn.computing_ms * times) for turn in self.turns)
        return replace(self, train_ms=longer, train_cpu_ms=longer, turns=turns)

    def _queue(self, workers: int, kept: float) -> Queue:
        return Queue(workers, self.prefetch, self.busy, self.team, max(1.0, self.usable_cpus), kept)


def overlap(evidence: Evidence, loader: Loader, step: Step, fetch: Fetch) -> Overlap:
    """The model for one loader of a run. The waits for the others are a part of training that stays."""
    per_step, others = max(loader.steady_batches_per_step, 1e-9), beside(evidence, step, loader)
    wait = min(own_wait_ms(evidence, step, loader), step.step_ms)
    train = step.step_ms - wait
    in_process = loader.num_workers == 0
    make_cpu = (fetch.getitem_cpu_ms + fetch.collate_cpu_ms + fetch.gc_ms) * per_step
    cpu = step.cpu_ms if isinstance(step.process_cpu_ms, Missing) else step.process_cpu_ms
    train_cpu = (max(0.0, cpu - make_cpu) if in_process else cpu) + others.idle_ms
    cpus = evidence.machine.usable_cpus / max(1, evidence.job.local_ranks)
    cpus = max(min(cpus, 1.0), cpus - others.cpus)
    mebibytes = 0.0 if isinstance(fetch.batch_bytes, Missing) else fetch.batch_bytes / 2**20
    best, worst = (
        (handover + copy * mebibytes) * per_step for handover, copy in zip(HANDOVER_MS, COPY_MS_PER_MIB, strict=True)
    )
    # Waiting for a CPU is not work: with CPUs to spare it would not be there.
    make = max(fetch.total_ms - fetch.run_delay_ms, 0.0) * per_step
    return Overlap(
        step_ms=step.step_ms,
        wait_ms=wait,
        make_ms=make,
        make_cpu_ms=make_cpu,
        train_ms=train,
        # Training cannot need more CPU than its threads have time.
        train_cpu_ms=min(train_cpu, train * cpus),
        usable_cpus=cpus,
        handover_ms=(best, worst),
        alone_ms=min(step.parts.alone + others.wait_ms, train),
        least_ms=others.least_ms,
        turns=_turns(loader, step, train, others),
        each_ms=_each(fetch, make),
        prefetch=loader.prefetch_factor or 2,
    )


def _turns(loader: Loader, step: Step, train_ms: float, others: Beside) -> tuple[Turn, ...]:
    """Training step by step, on average `train_ms` long: the steady step leaves hiccups out."""
    computing = sum(ms for ms, _ in loader.steps_ms)
    wanted = len(loader.steps_ms) * (train_ms - min(step.parts.alone + others.wait_ms, train_ms))
    factor = wanted / computing if computing > 0 else 1.0
    return tuple(Turn(factor * computing_ms, alone_ms + others.wait_ms) for computing_ms, alone_ms in loader.steps_ms)


def _each(fetch: Fetch, make_ms: float) -> tuple[float, ...]:
    """Making batch by batch, on average `make_ms` long: what a batch waited for a CPU is left out."""
    total = sum(fetch.each_ms)
    return tuple(one * make_ms * len(fetch.each_ms) / total for one in fetch.each_ms) if total > 0 else ()


def with_cpus(evidence: Evidence, number: int = 0) -> Evidence:
    """`evidence` with no run delay in the making of batches by the loader of that number, the first is waited for
    longest, and so much less wait: what would remain of it on a quiet machine. As it is where nothing is known of that.

    A batch of L ms of which D are run delay would take L - D. In the training process the wait is shorter by D for each
    batch; beside it, w workers leave a wait of no more than (L - D) / w - S, where S is the rest of the step, and it is
    shorter by D / w at least as far as there was a wait at all.
    """
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing) or isinstance(loaders, Missing) or not loaders:
        return evidence
    before = loaders[number]
    if isinstance(before.fetch, Missing):
        return evidence
    made, own = _undelayed(before.fetch), own_wait_ms(evidence, step, before)
    gone = own - _wait(before, before.fetch, made, own, step.step_ms)
    batches = max(before.steady_batches_per_step, 1e-9)
    loader = replace(before, fetch=made, wait_ms=max(0.0, before.wait_ms - gone / batches))
    parts = replace(step.parts, input_wait=step.parts.input_wait - gone)
    quiet = replace(step, step_ms=step.step_ms - gone, parts=parts)
    return replace(evidence, step=quiet, loaders=(*loaders[:number], loader, *loaders[number + 1 :]))


def _undelayed(fetch: Fetch) -> Fetch:
    """Run delay goes off the two halves by the time that each spent off the CPU."""
    data_set = max(0.0, fetch.getitem_ms - fetch.getitem_cpu_ms)
    collate = max(0.0, fetch.collate_ms - fetch.collate_cpu_ms)
    off = data_set + collate
    delay = min(fetch.run_delay_ms, off)
    # Collections are timed by the clock alone, and have what delay is left.
    collected = max(0.0, fetch.gc_ms - (fetch.run_delay_ms - delay))
    share = delay / off if off > 0 else 0.0
    return replace(
        fetch,
        getitem_ms=fetch.getitem_ms - share * data_set,
        collate_ms=fetch.collate_ms - share * collate,
        run_delay_ms=0.0,
        gc_ms=collected,
        # Which batches were delayed is not known.
        each_ms=(),
    )


def _wait(loader: Loader, fetch: Fetch, made: Fetch, wait: float, step_ms: float) -> float:
    batches = loader.steady_batches_per_step
    less = (fetch.total_ms - made.total_ms) * batches
    if not loader.num_workers:
        return max(0.0, wait - less)
    longer = made.total_ms * batches / loader.num_workers - (step_ms - wait)
    return max(0.0, min(wait - less / loader.num_workers, longer))
