"""The overlap model of loading: how long a step takes when batches are made beside it.

Training a step keeps S ms of wall time and S_cpu of CPU; making a batch takes L ms, L_cpu of them on a CPU. With
w workers the step can be no shorter than

    max(S, L / w, (S_cpu + L_cpu) / C) + T

where C is the number of CPUs that this rank has and T what handing a batch over costs the training process. This is
the min(F, P, G) of DS-Analyzer (Mohan et al., VLDB 2021), with the CPU as one more resource.

Where the threads of training and the workers together are more than C, a worker takes a CPU from a team of OpenMP
threads. The others then spin and wait at each operator's end, so that training keeps a part r of its speed while
batches are made, and the step can be no shorter than S + (1 - r) max(L / w, L_cpu / C).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..model import Evidence, Fetch, Loader, Missing, Step

HANDOVER_MS = (0.3, 2.0)
"""T for one batch, measured: 0.3 ms at best, 1 to 2 ms through a busy queue (437 bytes, one tensor)."""
COPY_MS_PER_MIB = (0.1, 0.5)
"""On top, for touching the batch's shared-memory pages in the training process: 2 to 10 GB/s."""
CROWDED = (0.4, 0.0)
"""r, at best and at worst: what a team of threads keeps of its speed while a worker has one of its CPUs. Two threads on
two CPUs beside one worker gained 0.98x, 1.03x and 1.09x where 2 x 2 CPUs shared evenly would have given 1.4x."""
_SLACK = 0.25
"""CPUs by which training and workers may exceed those that there are: neither is busy all the time."""
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

    @property
    def team(self) -> float:
        """CPUs that training keeps."""
        return self.train_cpu_ms / max(self.train_ms, 0.1)

    @property
    def busy(self) -> float:
        """CPUs that one worker keeps."""
        return self.make_cpu_ms / self.make_ms if self.make_ms > 0 else 1.0

    def is_crowded(self, workers: int) -> bool:
        """Whether that many workers would take CPUs from a team of several threads."""
        at_work = min(float(workers), self.make_ms / max(self.train_ms, 0.1)) * self.busy
        return self.team > 1 + _SLACK and self.team + at_work > self.usable_cpus + _SLACK

    def workers(self) -> int:
        """As many as keep up, and no more than there are CPUs for; waiting for storage needs none."""
        wanted = math.ceil(_MARGIN * self.make_ms / max(self.train_ms, 0.1))
        spare = max(1.0, self.usable_cpus - min(self.usable_cpus - 1, self.team))
        affordable = math.floor(spare / max(self.busy, spare / _MOST_WORKERS))
        return max(1, min(wanted, affordable, _MOST_WORKERS))

    def step_with(self, workers: int) -> tuple[float, float]:
        """The step with that many workers: at best, at worst."""
        cpus = max(1.0, self.usable_cpus)
        making = max(self.make_ms / workers, self.make_cpu_ms / cpus)
        floor = max(self.train_ms, making, (self.train_cpu_ms + self.make_cpu_ms) / cpus)
        kept = CROWDED if self.is_crowded(workers) else (1.0, 1.0)
        least, most = (max(floor, self.train_ms + (1 - part) * making) for part in kept)
        best, worst = self.handover_ms
        # At worst the two sides disturb each other by a tenth: caches, memory bandwidth, bursts.
        return least + best, 1.1 * most + worst

    def saved_with(self, workers: int) -> tuple[float, float]:
        """What that saves per step: at worst, at best; below zero where workers would hurt."""
        best, worst = self.step_with(workers)
        return self.step_ms - worst, self.step_ms - best

    def with_one_thread(self, times: float) -> Overlap:
        """The same with training on one thread, for which its operators take `times` as long."""
        longer = self.train_ms * times
        return replace(self, train_ms=longer, train_cpu_ms=longer)


def overlap(evidence: Evidence, loader: Loader, step: Step, fetch: Fetch) -> Overlap:
    """The model for one loader of a run."""
    per_step = max(loader.steady_batches_per_step, 1e-9)
    wait = min(step.parts.input_wait, step.step_ms)
    train = step.step_ms - wait
    in_process = loader.num_workers == 0
    make_cpu = (fetch.getitem_cpu_ms + fetch.collate_cpu_ms + fetch.gc_ms) * per_step
    cpu = step.cpu_ms if isinstance(step.process_cpu_ms, Missing) else step.process_cpu_ms
    train_cpu = max(0.0, cpu - make_cpu) if in_process else cpu
    cpus = evidence.machine.usable_cpus / max(1, evidence.job.local_ranks)
    mebibytes = 0.0 if isinstance(fetch.batch_bytes, Missing) else fetch.batch_bytes / 2**20
    best, worst = (
        (handover + copy * mebibytes) * per_step for handover, copy in zip(HANDOVER_MS, COPY_MS_PER_MIB, strict=True)
    )
    return Overlap(
        step_ms=step.step_ms,
        wait_ms=wait,
        # Waiting for a CPU is not work: with CPUs to spare it would not be there.
        make_ms=max(fetch.total_ms - fetch.run_delay_ms, 0.0) * per_step,
        make_cpu_ms=make_cpu,
        train_ms=train,
        # Training cannot need more CPU than its threads have time.
        train_cpu_ms=min(train_cpu, train * cpus),
        usable_cpus=cpus,
        handover_ms=(best, worst),
    )


def with_cpus(evidence: Evidence) -> Evidence:
    """`evidence` with no run delay in the making of batches by the loader that is waited for longest, and so much
    less wait: what would remain of it on a quiet machine. As it is where nothing is known of that.

    A batch of L ms of which D are run delay would take L - D. In the training process the wait is shorter by D for each
    batch; beside it, w workers leave a wait of no more than (L - D) / w - S, where S is the rest of the step, and it is
    shorter by D / w at least as far as there was a wait at all.
    """
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing) or isinstance(loaders, Missing) or not loaders:
        return evidence
    first, *others = loaders
    if isinstance(first.fetch, Missing):
        return evidence
    made = _undelayed(first.fetch)
    wait = _wait(first, first.fetch, made, step)
    gone = step.parts.input_wait - wait
    batches = max(first.steady_batches_per_step, 1e-9)
    loader = replace(first, fetch=made, wait_ms=max(0.0, first.wait_ms - gone / batches))
    quiet = replace(step, step_ms=step.step_ms - gone, parts=replace(step.parts, input_wait=wait))
    return replace(evidence, step=quiet, loaders=(loader, *others))


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


def _wait(loader: Loader, fetch: Fetch, made: Fetch, step: Step) -> float:
    batches, wait = loader.steady_batches_per_step, step.parts.input_wait
    less = (fetch.total_ms - made.total_ms) * batches
    if not loader.num_workers:
        return max(0.0, wait - less)
    beside = made.total_ms * batches / loader.num_workers - (step.step_ms - wait)
    return max(0.0, min(wait - less / loader.num_workers, beside))
