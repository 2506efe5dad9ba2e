"""The step without its wait for data: on a CPU, without one, blocked; and what timings would take off it."""

from __future__ import annotations

from typing import NamedTuple

from ..model import Cause, Compute, Evidence, Lack, Missing, Share, Step
from .cpus import SIGNS, Signs, lack_of_cpu
from .ledger import Ledger
from .timings import TypeCost, thread_gain, type_cost, vector_extension_cost

_TYPES = ("float64", "float16", "bfloat16")


def compute(evidence: Evidence, signs: Signs = SIGNS) -> Compute | Missing:
    """Forward, backward, optimizer and everything else but the wait for data, by cause."""
    step = evidence.step
    if isinstance(step, Missing):
        return step
    whole = max(0.0, step.step_ms - step.parts.input_wait - step.parts.communication)
    made, received = _in_wait(evidence, step)
    ledger = Ledger(whole)
    gc = ledger.give(Cause.GC, step.parts.gc, "pauses timed one by one")
    most = min(ledger.left_ms, max(0.0, step.cpu_ms - made.cpu_ms - gc))
    on_cpu = max(0.0, min(most, step.cpu_ms - made.cpu_ms - gc - received))
    faults = _faults(evidence)
    taken = ledger.give(
        Cause.PAGE_FAULTS,
        faults if isinstance(faults, Missing) else min(faults, on_cpu),
        "page faults at their timing here, within the kernel's CPU time",
    )
    ledger.give(Cause.RUNNING, on_cpu - taken, "CPU time of the training thread")
    _give_lack(lack_of_cpu(evidence, signs), step, made.delay_ms, ledger, ledger.left_ms - (most - on_cpu))
    if isinstance(step.run_delay_ms, Missing):
        ledger.give(Cause.BLOCKED, step.run_delay_ms, "not told from time without a CPU")
    else:
        ledger.give(Cause.BLOCKED, ledger.left_ms - (most - on_cpu), "neither on a CPU nor waiting for one")
    unknown = "CPU time that receiving batches may have had; without run delay also all time off the CPU"
    return Compute(whole, ledger.close(unknown), _savable(evidence))


class _Made(NamedTuple):
    """Making batches in the training thread, per step."""

    cpu_ms: float
    delay_ms: float


def _in_wait(evidence: Evidence, step: Step) -> tuple[_Made, float]:
    """What the training thread does in the wait: making batches, and receiving them, which the clock alone times."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    wait = step.parts.input_wait
    cpu = delay = received = 0.0
    for loader in loaders:
        if loader.num_workers:
            received += loader.transport_ms * loader.steady_batches_per_step
        elif not isinstance(loader.fetch, Missing):
            cpu += (loader.fetch.getitem_cpu_ms + loader.fetch.collate_cpu_ms) * loader.steady_batches_per_step
            delay += loader.fetch.run_delay_ms * loader.steady_batches_per_step
    return _Made(min(cpu, wait), delay), min(received, wait)


def _give_lack(lack: Lack | Missing, step: Step, in_wait_ms: float, ledger: Ledger, room_ms: float) -> None:
    """Run delay by its owners; what the quota stopped the group for beyond it is the quota's by the kernel's count."""
    stopped = 0.0 if isinstance(lack, Missing) else min(lack.stopped_ms, room_ms)
    if isinstance(lack, Missing) or isinstance(lack.thread_ms, Missing):
        ledger.give(Cause.QUOTA, stopped, "time that the group was stopped")
        ledger.give(Cause.NO_CPU, step.run_delay_ms, "not told from time blocked")
        return
    delay = min(max(0.0, lack.thread_ms - in_wait_ms), room_ms)
    if isinstance(lack.owners, Missing):
        ledger.give(Cause.NO_CPU, delay, f"run delay; who had the CPU is not known: {lack.owners}")
        return
    for cause, fraction in lack.owners:
        ms = fraction * delay + (max(0.0, stopped - delay) if cause is Cause.QUOTA else 0.0)
        ledger.give(cause, ms, "run delay, by what used the CPUs and how long the quota stopped them")


def _faults(evidence: Evidence) -> float | Missing:
    memory, fault_ns = evidence.memory, evidence.machine.page_fault_ns
    if isinstance(memory, Missing):
        return memory
    if not fault_ns:
        return Missing("the cost of a page fault could not be measured on this machine")
    return min(memory.system_cpu_ms, memory.minor_faults * fault_ns / 1e6)


def _savable(evidence: Evidence) -> tuple[Share, ...]:
    """Each fraction of what the settings before it leave."""
    step, ops = evidence.step, evidence.ops
    if isinstance(step, Missing):
        return ()
    if isinstance(ops, Missing):
        causes = (Cause.THREADS, Cause.TYPES, Cause.VECTOR_EXTENSIONS)
        return tuple(Share(cause, ops, "operators were not profiled") for cause in causes)
    threads, backend = thread_gain(evidence), evidence.backend
    types = [cost for dtype in _TYPES if (cost := type_cost(step, ops, dtype)).is_dear]
    limiting = backend if isinstance(backend, Missing) else backend.vector_extension_timings
    asked: list[tuple[Cause, float | Missing, str]] = [
        (
            Cause.THREADS,
            threads if isinstance(threads, Missing) else threads.lost_ms,
            "the largest operators timed with other numbers of threads",
        ),
        (
            Cause.TYPES,
            _middle(types) if not evidence.on_cuda else Missing("on a device operators cannot be timed so"),
            "operators timed in float32",
        ),
        (
            Cause.VECTOR_EXTENSIONS,
            limiting if isinstance(limiting, Missing) else vector_extension_cost(step, ops, limiting).saved_ms,
            "operators timed without the limit",
        ),
    ]
    left, shares = step.working_ms, []
    for cause, ms, basis in asked:
        if not isinstance(ms, Missing):
            part = min(1.0, max(0.0, ms) / step.working_ms) if step.working_ms > 0 else 0.0
            ms = part * left
            left -= ms
        shares.append(Share(cause, ms, basis))
    return tuple(shares)


def _middle(types: list[TypeCost]) -> float:
    return sum((cost.low_ms + cost.high_ms) / 2 for cost in types)
