"""The wait for data, divided among what makes it and what hands it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..model import MAKING, WITHOUT_CPU, Cause, Evidence, Fetch, InputWait, Loader, Missing, Step
from .cpus import are_bound, lack_of_cpu
from .ledger import Ledger
from .overlap import overlap

_READY = 0.3
"""Below this share of arrivals at an empty queue, batches were ready: the loader keeps up."""
_STARVED = 0.4
"""Share of making a batch spent runnable without a CPU, from which on CPUs are what is missing."""
_MOST = 0.5
"""Who explains less than half of the wait is not to blame for it."""
REBUILT = 1.5
"""Batches per iterator up to which the iterator is rebuilt for each of them."""
_BOOKKEEPING_MS = 0.5
"""What a loader without workers takes per batch beside making it: 0.02 ms on an idle machine, 0.3 on a busy one."""

_Owners = tuple[tuple[Cause, float], ...]


class _Verdict(NamedTuple):
    """See `InputWait`."""

    making_ms: float
    blamed: Cause
    blamed_ms: float


def input_wait(evidence: Evidence) -> InputWait | Missing:
    """The wait of the steady step by cause; the loader that is waited for longest speaks for all."""
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing):
        return step
    if isinstance(loaders, Missing):
        return loaders
    wait = evidence.felt_ms(step.parts.input_wait)
    ledger = Ledger(wait)
    verdict = _divide(evidence, loaders, step, ledger) if loaders else _Verdict(0.0, Cause.UNEXPLAINED, wait)
    return InputWait(
        wait_ms=wait,
        hidden_ms=step.parts.input_wait - wait,
        shares=ledger.close("the sampler, pinning memory, or a few slow batches"),
        making_ms=verdict.making_ms,
        blamed=verdict.blamed,
        blamed_ms=verdict.blamed_ms,
    )


def _divide(evidence: Evidence, loaders: tuple[Loader, ...], step: Step, ledger: Ledger) -> _Verdict:
    """Start, then making or receiving."""
    loader, wait = loaders[0], ledger.left_ms
    rebuilt = loader.batches_per_iterator <= REBUILT and loader.iterators > 2
    starts = [found.in_wait_ms for one in loaders if (found := restart(one, step)) is not None]
    each = loader.iterator_ms * loader.steady_batches_per_step
    start = (each or wait) if rebuilt else sum(starts)
    ledger.give(Cause.START, start, "iterators were timed from their making to their first batch, and at their end")
    rest, fetch = ledger.left_ms, loader.fetch
    if isinstance(fetch, Missing):
        for cause in (*MAKING, Cause.HANDOVER):
            ledger.give(cause, fetch, "making a batch was not timed")
        verdict = _Verdict(0.0, Cause.UNEXPLAINED, rest)
    else:
        verdict = _making_or_receiving(evidence, loader, step, fetch, ledger)
    return verdict._replace(blamed=Cause.START, blamed_ms=wait) if rebuilt else verdict


def _making_or_receiving(evidence: Evidence, loader: Loader, step: Step, fetch: Fetch, ledger: Ledger) -> _Verdict:
    rest = ledger.left_ms
    ready = loader.num_workers > 0 and not isinstance(loader.empty_share, Missing) and loader.empty_share < _READY
    made = fetch.total_ms * loader.steady_batches_per_step
    if ready:
        made = max(0.0, made / loader.num_workers - overlap(evidence, loader, step, fetch).train_ms)
    making = min(made, rest)
    _give_making(ledger, fetch, making, loader, _owners(evidence, loader))
    _give_receiving(ledger, loader, ready)
    if making >= _MOST * rest:
        return _Verdict(making, _of_making(ledger, fetch), rest)
    if ready:
        return _Verdict(making, Cause.HANDOVER, rest)
    if loader.num_workers or ledger.left_ms > 0:
        return _Verdict(making, Cause.UNEXPLAINED, rest)
    return _Verdict(making, _of_making(ledger, fetch), making)


def _owners(evidence: Evidence, loader: Loader) -> _Owners | Missing:
    if loader.num_workers and are_bound(evidence, loader):
        return ((Cause.OWN_THREADS, 1.0),)
    lack = lack_of_cpu(evidence)
    return lack if isinstance(lack, Missing) else lack.owners


def _give_making(ledger: Ledger, fetch: Fetch, making: float, loader: Loader, owners: _Owners | Missing) -> None:
    """By the parts of making one batch."""
    off_cpu = max(0.0, fetch.getitem_ms - fetch.getitem_cpu_ms) + max(0.0, fetch.collate_ms - fetch.collate_cpu_ms)
    # Collections are timed by the clock alone: they may have waited for a CPU too.
    delay = min(fetch.run_delay_ms, off_cpu + fetch.gc_ms)
    collected = fetch.gc_ms - max(0.0, delay - off_cpu)
    storage = fetch.getitem_blocked_ms
    transform = min(fetch.getitem_ms, fetch.getitem_cpu_ms)
    collate = max(0.0, fetch.total_ms - collected - delay - storage - transform)
    whole = delay + storage + transform + collate + collected
    scale = making / whole if whole > 0 else 0.0
    where = "in the workers" if loader.num_workers else "in the training process"
    if isinstance(owners, Missing):
        ledger.give(Cause.NO_CPU, delay * scale, f"run delay {where}; who had the CPU is not known: {owners}")
    else:
        for cause, fraction in owners:
            ledger.give(cause, delay * scale * fraction, f"run delay {where}, by what used the CPUs")
    ledger.give(
        Cause.GC,
        collected * scale,
        "collections in the workers" if loader.num_workers else "taken off where they are timed",
    )
    ledger.give(Cause.TRANSFORM, transform * scale, "CPU time of the data set")
    ledger.give(Cause.STORAGE, storage * scale, "time in the data set off the CPU, run delay apart")
    ledger.give(Cause.COLLATE, collate * scale, "time in `collate_fn`, run delay apart")


def _give_receiving(ledger: Ledger, loader: Loader, ready: bool) -> None:
    per_step = loader.steady_batches_per_step
    if not loader.num_workers:
        ledger.give(Cause.BOOKKEEPING, _BOOKKEEPING_MS * max(1.0, per_step), "a loader without workers, per batch")
    elif ready:
        ledger.give(Cause.HANDOVER, ledger.left_ms, "batches were ready on arrival")
    else:
        ledger.give(Cause.HANDOVER, loader.transport_ms * per_step, "unpickling in the training process")


def _of_making(ledger: Ledger, fetch: Fetch) -> Cause:
    given = {share.cause: share.ms for share in ledger.shares if not isinstance(share.ms, Missing)}
    starved = fetch.total_ms > 0 and fetch.run_delay_ms / fetch.total_ms >= _STARVED
    return max(WITHOUT_CPU if starved else (*MAKING, Cause.GC), key=lambda cause: given.get(cause, 0.0))


# -- starting workers anew --------------------------------------------------------------------------------


_SLOWED = 1.25
"""Times what the iterator itself takes."""


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
