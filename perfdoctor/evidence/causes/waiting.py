"""The wait for data, divided among the loaders, and among what makes their batches and what hands them over."""

from __future__ import annotations

from typing import NamedTuple

from ..model import MAKING, WITHOUT_CPU, Cause, Evidence, Fetch, InputWait, Loader, Missing, Step
from .by_loader import wait_fractions
from .cpus import are_bound, lack_of_cpu
from .ledger import Ledger
from .overlap import overlap
from .starts import is_rebuilt, restart

_READY = 0.3
"""Below this share of arrivals at an empty queue, batches were ready: the loader keeps up."""
_STARVED = 0.4
"""Share of making a batch spent runnable without a CPU, from which on CPUs are what is missing."""
_MOST = 0.5
"""Who explains less than half of the wait is not to blame for it."""
_BOOKKEEPING_MS = 0.5
"""What a loader without workers takes per batch beside making it: 0.02 ms on an idle machine, 0.3 on a busy one."""
_REST = "the sampler, pinning memory, or a few slow batches"

_Owners = tuple[tuple[Cause, float], ...]


class _Verdict(NamedTuple):
    """See `InputWait`."""

    making_ms: float
    blamed: Cause
    blamed_ms: float


def input_wait(evidence: Evidence) -> InputWait | Missing:
    """The wait of the steady step by cause, for all loaders together; the one waited for longest has the blame."""
    waits = loader_waits(evidence)
    if isinstance(waits, Missing):
        return waits
    if not waits:
        return _nobodys(evidence)
    longest = max(waits, key=lambda wait: wait.wait_ms)
    return InputWait(
        wait_ms=sum(wait.wait_ms for wait in waits),
        hidden_ms=sum(wait.hidden_ms for wait in waits),
        shares=tuple(share for wait in waits for share in wait.shares),
        making_ms=sum(wait.making_ms for wait in waits),
        blamed=longest.blamed,
        blamed_ms=sum(wait.blamed_ms for wait in waits),
    )


def loader_waits(evidence: Evidence) -> tuple[InputWait, ...] | Missing:
    """The same loader by loader, in their order: each has its own part of the step's wait."""
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing):
        return step
    if isinstance(loaders, Missing):
        return loaders
    felt = evidence.felt_ms(step.parts.input_wait)
    parts = zip(loaders, wait_fractions(loaders, step), strict=True)
    return tuple(
        _divided(evidence, loader, step, fraction * felt, fraction * (step.parts.input_wait - felt))
        for loader, fraction in parts
    )


def _nobodys(evidence: Evidence) -> InputWait:
    """A wait without a loader that is known."""
    assert not isinstance(evidence.step, Missing)
    whole = evidence.step.parts.input_wait
    wait = evidence.felt_ms(whole)
    return InputWait(wait, whole - wait, Ledger(wait).close(_REST), 0.0, Cause.UNEXPLAINED, wait)


def _divided(evidence: Evidence, loader: Loader, step: Step, wait: float, hidden: float) -> InputWait:
    """Start, then making or receiving."""
    ledger, rebuilt, restarted = Ledger(wait), is_rebuilt(loader), restart(loader, step)
    if rebuilt:
        start = loader.iterator_ms * loader.steady_batches_per_step or wait
    else:
        start = 0.0 if restarted is None else restarted.in_wait_ms
    ledger.give(Cause.START, start, "iterators were timed from their making to their first batch, and at their end")
    rest, fetch = ledger.left_ms, loader.fetch
    if isinstance(fetch, Missing):
        for cause in (*MAKING, Cause.HANDOVER):
            ledger.give(cause, fetch, "making a batch was not timed")
        verdict = _Verdict(0.0, Cause.UNEXPLAINED, rest)
    else:
        verdict = _making_or_receiving(evidence, loader, step, fetch, ledger)
    if rebuilt:
        verdict = verdict._replace(blamed=Cause.START, blamed_ms=wait)
    return InputWait(wait, hidden, ledger.close(_REST), **verdict._asdict())


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
