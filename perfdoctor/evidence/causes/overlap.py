"""The overlap model of loading: how long a step takes when batches are made beside it.

Training a step keeps S ms of wall time and S_cpu of CPU; making a batch takes L ms, L_cpu of them on a CPU. With
w workers the step can be no shorter than

    max(S, L / w, (S_cpu + L_cpu) / C) + T

where C is the number of usable CPUs and T what handing a batch over costs the training process. This is the
min(F, P, G) of DS-Analyzer (Mohan et al., VLDB 2021), with the CPU as one more resource.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
