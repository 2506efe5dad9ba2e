"""The overlap model of loading: how long a step takes when batches are made beside it.

Training a step keeps S ms of wall time and S_cpu of CPU; making a batch takes L ms, L_cpu of them on a CPU. With
w workers the step can be no shorter than

    max(S, L / w, (S_cpu + L_cpu) / C) + T

where C is the number of usable CPUs and T what handing a batch over costs the training process. This is the
min(F, P, G) of DS-Analyzer (Mohan et al., VLDB 2021), with the CPU as one more resource.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..model import Evidence, Fetch, Loader, Missing, Step

HANDOVER_MS = (0.3, 2.0)
"""T for one batch, measured: 0.3 ms at best, 1 to 2 ms through a busy queue (437 bytes, one tensor)."""
COPY_MS_PER_MIB = (0.1, 0.5)
"""On top, for touching the batch's shared-memory pages in the training process: 2 to 10 GB/s."""
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
    usable_cpus: float
    handover_ms: tuple[float, float]

    def workers(self) -> int:
        """As many as keep up, and no more than there are CPUs for; waiting for storage needs none."""
        wanted = math.ceil(_MARGIN * self.make_ms / max(self.train_ms, 0.1))
        busy = self.make_cpu_ms / self.make_ms if self.make_ms > 0 else 1.0
        spare = max(1.0, self.usable_cpus - min(self.usable_cpus - 1, self.train_cpu_ms / max(self.train_ms, 0.1)))
        affordable = math.floor(spare / max(busy, spare / _MOST_WORKERS))
        return max(1, min(wanted, affordable, _MOST_WORKERS))

    def step_with(self, workers: int) -> tuple[float, float]:
        """The step with that many workers: at best, at worst."""
        floor = max(
            self.train_ms,
            self.make_ms / workers,
            (self.train_cpu_ms + self.make_cpu_ms) / max(1.0, self.usable_cpus),
        )
        best, worst = self.handover_ms
        # At worst the two sides disturb each other by a tenth: caches, memory bandwidth, bursts.
        return floor + best, 1.1 * floor + worst

    def saved_with(self, workers: int) -> tuple[float, float]:
        """What that saves per step: at worst, at best; below zero where workers would hurt."""
        best, worst = self.step_with(workers)
        return self.step_ms - worst, self.step_ms - best


def overlap(evidence: Evidence, loader: Loader, step: Step, fetch: Fetch) -> Overlap:
    """The model for one loader of a run."""
    per_step = max(loader.steady_batches_per_step, 1e-9)
    wait = min(step.parts.input_wait, step.step_ms)
    train = step.step_ms - wait
    in_process = loader.num_workers == 0
    make_cpu = (fetch.getitem_cpu_ms + fetch.collate_cpu_ms + fetch.gc_ms) * per_step
    cpu = step.cpu_ms if isinstance(step.process_cpu_ms, Missing) else step.process_cpu_ms
    train_cpu = max(0.0, cpu - make_cpu) if in_process else cpu
    # Spinning OpenMP threads look busy: training cannot need more CPU than its threads have time.
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
        train_cpu_ms=min(train_cpu, train * evidence.machine.usable_cpus),
        usable_cpus=evidence.machine.usable_cpus,
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
