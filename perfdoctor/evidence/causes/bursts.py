"""Batches that come in bursts: workers that keep up on average, and a slow batch now and then.

The loop takes batches in order, so one slow batch holds up all behind it, finished or not. How long depends on how far
the workers may work ahead: the queue played through (`played`) with the times that single batches were measured to
take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import Fetch, Loader
from .overlap import Overlap
from .played import Queue, Turn, play

_KEEPS_UP = 0.97
"""Workers that are busy for more of the time than this cannot make good a slow batch, however far ahead they are."""
_AHEAD = (4, 8, 16, 32)
"""Prefetch factors to choose from; more batches than these are a question of memory."""
_ENOUGH = 0.8
"""Of what the largest of them would save: the first that saves so much is taken."""
_LEAST = 40
"""Batches that must have been timed: fewer do not tell how often a slow one comes."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """What working further ahead would do to the wait; milliseconds per step."""

    now_ms: float
    """The wait that these batches come to by the model above, with the loader's own prefetch factor."""
    factor: int
    ahead_ms: float
    """The same with `factor`."""
    slow_ms: float
    """The slowest twentieth of the batches take this long and longer."""
    typical_ms: float
    """The median batch."""


def bursts(loader: Loader, fetch: Fetch, model: Overlap) -> Bursts | None:
    """None where batches are not made by workers that keep up on average, or too few of them were timed."""
    each, workers, now = fetch.each_ms, loader.num_workers, loader.prefetch_factor or 2
    factors = [factor for factor in _AHEAD if factor > now]
    if not workers or len(each) < _LEAST or not factors or loader.steady_batches_per_step <= 0:
        return None
    training = model.train_ms / loader.steady_batches_per_step
    if sum(each) / len(each) / workers > _KEEPS_UP * training:
        return None
    waits = {factor: wait_ms(each, workers, factor, training) for factor in (now, *factors)}
    wanted = waits[now] - _ENOUGH * (waits[now] - min(waits.values()))
    factor = next(factor for factor in (*factors, now) if waits[factor] <= wanted)
    ordered = sorted(each)
    return Bursts(
        now_ms=waits[now] * loader.steady_batches_per_step,
        factor=factor,
        ahead_ms=waits[factor] * loader.steady_batches_per_step,
        slow_ms=ordered[int(0.95 * len(ordered))],
        typical_ms=ordered[len(ordered) // 2],
    )


def wait_ms(each_ms: Sequence[float], workers: int, prefetch: int, training_ms: float) -> float:
    """Mean wait for a batch with CPUs for all."""
    queue = Queue(workers, prefetch, busy=1.0, team=1.0, cpus=workers + 1.0)
    return max(0.0, play(each_ms, (Turn(training_ms),), queue) - training_ms)
