"""The queue between workers and training, played through: when each batch is made and when it is taken.

w workers with a prefetch factor of p have w * p batches under way or waiting. Batch i goes to worker i mod w, which
starts it once its last one is done and batch i - w * p has been taken; training takes batches in order, computes on
each, and then may do something on one thread alone (a collection, a checkpoint, a print). Meanwhile everything runs at
full speed as long as there is a CPU for each thread at work. Where there is not,

- a team of OpenMP threads keeps a part `kept` of its speed: each operator ends when its slowest thread does, and that
  one has to wait until a worker lets its CPU go;
- threads that work on their own share the CPUs evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SLACK = 0.25
"""CPUs by which threads at work may exceed those that there are: none of them is busy all the time."""
_MOST_AHEAD = 1000
"""Batches that are made before they are taken: more are never waited for. A recording may say any number, and 0."""
_DONE_MS = 1e-9
_LEAST = 64
"""Batches: what follows the first ones, until a pause finds the queue as the one before it did, is few of them then."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What training does with one batch, without waiting for it; milliseconds."""

    computing_ms: float
    """With all threads of its team."""
    alone_ms: float = 0.0
    """On one thread: collections, checkpoints, logging."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Who makes batches and who takes them, on how many CPUs."""

    workers: int
    prefetch: int
    busy: float
    """CPUs that one worker keeps while it makes a batch."""
    team: float
    """CPUs that training keeps while it computes."""
    cpus: float
    kept: float = 1.0
    """Of a team's speed, while a worker has one of its CPUs."""

    @property
    def is_team(self) -> bool:
        """Whether several threads compute together, and wait for each other."""
        return self.team > 1 + _SLACK

    def is_crowded(self, at_work: float) -> bool:
        """Whether so many busy workers take CPUs from a team."""
        return self.is_team and self.team + at_work * self.busy > self.cpus + _SLACK

    def speeds(self, making: int, training: float) -> tuple[float, float]:
        """Of training and of a worker: with so many of them at work, and training on so many CPUs."""
        wanted = training + making * self.busy
        if not making or wanted <= self.cpus + _SLACK:
            return 1.0, 1.0
        if training > 1 + _SLACK:
            return self.kept, min(1.0, self.cpus / (making * self.busy))
        even = self.cpus / wanted
        return even, even


def play(made_ms: Sequence[float], turns: Sequence[Turn], queue: Queue) -> float:
    """Mean time from one batch to the next, ms, after the first `workers * prefetch`, which meet a queue that is still
    being filled. Both sequences begin again where they end before the other."""
    ahead = max(queue.workers, min(queue.workers * queue.prefetch, _MOST_AHEAD))
    period = max(len(made_ms), len(turns))
    count = ahead + period * -(-_LEAST // period)
    given = list(range(queue.workers))  # the batch that each worker makes, or makes next
    left = [0.0] * queue.workers  # of making it, ms; 0 before it is begun
    done: set[int] = set()
    taken, clock, from_then = 0, 0.0, 0.0
    computing = alone = 0.0
    while True:
        if computing <= _DONE_MS and alone <= _DONE_MS and taken in done:
            done.remove(taken)
            turn = turns[taken % len(turns)]
            computing, alone = turn.computing_ms, turn.alone_ms
            taken += 1
            if taken == ahead:
                from_then = clock
            if taken == count:
                return (clock - from_then) / (count - ahead)
        for worker, batch in enumerate(given):
            if left[worker] <= _DONE_MS and batch < taken + ahead and batch not in done:
                left[worker] = max(made_ms[batch % len(made_ms)], 2 * _DONE_MS)
        making = [worker for worker in range(queue.workers) if left[worker] > _DONE_MS]
        training = queue.team if computing > _DONE_MS else float(alone > _DONE_MS)
        of_training, of_worker = queue.speeds(len(making), training)
        ends = [left[worker] / of_worker for worker in making]
        # Training that waits for something else keeps no CPU, and goes on all the same.
        if max(computing, alone) > _DONE_MS and of_training > 0:
            ends.append((computing if computing > _DONE_MS else alone) / of_training)
        passed = min(ends, default=_DONE_MS)
        clock += passed
        for worker in making:
            left[worker] -= passed * of_worker
            if left[worker] <= _DONE_MS:
                left[worker] = 0.0
                done.add(given[worker])
                given[worker] += queue.workers
        if computing > _DONE_MS:
            computing -= passed * of_training
        else:
            alone -= passed * of_training
