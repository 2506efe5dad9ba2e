"""Whose wait it is: the wait for data of the steady step by loader, and what the others mean to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..model import Evidence, Loader, Missing, Step
from .starts import is_rebuilt, restart


def wait_fractions(loaders: Sequence[Loader], step: Step) -> tuple[float, ...]:
    """Of the step's wait, what is each loader's: by how long its batches were waited for, and its iterators where these
    start in the steady steps. Together 1; all of it the first one's where nothing was waited for."""
    waited = [_waited_ms(loader, step) for loader in loaders]
    whole = sum(waited)
    return tuple(ms / whole if whole > 0 else float(place == 0) for place, ms in enumerate(waited))


def _waited_ms(loader: Loader, step: Step) -> float:
    batches = loader.wait_ms * loader.steady_batches_per_step
    if is_rebuilt(loader):
        return max(batches, loader.iterator_ms * loader.steady_batches_per_step)
    restarted = restart(loader, step)
    return batches + (0.0 if restarted is None else restarted.in_wait_ms)


def own_wait_ms(evidence: Evidence, step: Step, loader: Loader) -> float:
    """Of the step's wait, that for one loader."""
    if isinstance(evidence.loaders, Missing):
        return step.parts.input_wait
    fractions = zip(evidence.loaders, wait_fractions(evidence.loaders, step), strict=True)
    return sum(fraction for one, fraction in fractions if one.id == loader.id) * step.parts.input_wait


@dataclass(frozen=True, slots=True)
class Beside:
    """The other loaders of a step, as one of them meets them; ms per step."""

    wait_ms: float = 0.0
    """For them: one thread makes their batches, or a worker does."""
    idle_ms: float = 0.0
    """Of that, in which the training process is on no CPU: it waits for workers, or for storage."""
    cpus: float = 0.0
    """That their workers keep busy while it does not wait for them."""
    least_ms: float = 0.0
    """A step cannot be shorter than what their workers take for its batches."""


def beside(evidence: Evidence, step: Step, loader: Loader) -> Beside:
    """All loaders but this one."""
    others = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    wait = idle = cpus = least = 0.0
    for other in others:
        if other.id == loader.id:
            continue
        own, making = own_wait_ms(evidence, step, other), _making(other)
        wait += own
        if not other.num_workers:
            idle += max(0.0, own - making.cpu_ms)
            continue
        idle += own
        # While it is waited for, one of its workers has the CPU that the training process leaves.
        cpus += max(0.0, making.cpu_ms - own) / max(step.step_ms, 1e-9)
        least = max(least, making.ms / other.num_workers)
    return Beside(wait, idle, cpus, least)


class _Making(NamedTuple):
    """The batches of one loader, per step, with CPUs for them."""

    ms: float
    cpu_ms: float


def _making(loader: Loader) -> _Making:
    fetch, batches = loader.fetch, loader.steady_batches_per_step
    if isinstance(fetch, Missing):
        return _Making(0.0, 0.0)
    on_cpu = fetch.getitem_cpu_ms + fetch.collate_cpu_ms + fetch.gc_ms
    return _Making(max(0.0, fetch.total_ms - fetch.run_delay_ms) * batches, on_cpu * batches)
