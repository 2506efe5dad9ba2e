"""Iterators and workers that start anew, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Loader, Step

REBUILT = 1.5
"""Batches per iterator up to which the iterator is rebuilt for each of them."""
_SLOWED = 1.25
"""Times what the iterator itself takes."""


def is_rebuilt(loader: Loader) -> bool:
    """Whether each batch has an iterator of its own."""
    return loader.batches_per_iterator <= REBUILT and loader.iterators > 2


@dataclass(frozen=True, slots=True)
class Restart:
    """Workers that each epoch starts anew, ms per step."""

    cost_ms: float
    most_ms: float
    """With all by which the steps exceed others in which they start; `cost_ms` where that is not known."""
    in_wait_ms: float
    """Of that in the steady wait."""
    is_regular: bool
    """The starts are in steady steps; else epochs are so long that they are irregular ones."""
    slows_training: bool = False
    """Steps in which they start take longer in forward and backward, too."""


def restart(loader: Loader, step: Step) -> Restart | None:
    """What starting the workers of one loader costs; None where they stay."""
    # Workers outlive an epoch only as long as their loader does.
    if not loader.num_workers or (loader.persistent_workers and loader.made < 2) or loader.iterators < 2:
        return None
    if loader.batches_per_iterator <= REBUILT:
        return None
    per_start = max(0.0, loader.iterator_ms - loader.wait_ms)
    sure, most = (max(per_start, excess + loader.iterator_end_ms) for excess in loader.first_step_ms)
    per_step = loader.steady_batches_per_step / loader.batches_per_iterator
    regular = step.irregular_ms < 0.5 * per_start * per_step
    if regular:
        cost = per_start * per_step
        return Restart(cost, cost, min(cost, step.parts.input_wait), regular)
    cost, most = (min(step.irregular_ms, ms * per_step) for ms in (sure, most))
    return Restart(cost, most, 0.0, regular, slows_training=most > _SLOWED * per_start * per_step)
