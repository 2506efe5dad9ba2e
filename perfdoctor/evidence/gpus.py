"""GPU samples of the steady span: how busy, shared with whom, slowed by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..recording.host import GpuProcess, GpuSample, HostSample
from ..recording.machine import Gpu
from .model import Missing

CONTEXT_BYTES = 64 << 20
"""A CUDA context takes more than this (100 to 500 MiB in practice), so a GPU whose memory grew by less since
the first sample was not touched. It stands in for pids, which NVML does not tell inside a container."""
IDLE_UTILISATION = 0.05
IDLE_BYTES = 1 << 30
"""The driver itself keeps up to some 600 MiB on a large board."""
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""nvmlClocksEventReasons that cost time: hardware slowdown, software and hardware thermal, power brake. The power
cap (0x4) is normal at full load."""


def in_use(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> frozenset[int]:
    """GPUs with a process of the job; without any, those whose memory grew since the run's first sample."""
    by_pid = frozenset(
        gpu.index for s in chosen for gpu in s.gpus or () if any(p.pid in s.job_gpu_pids for p in gpu.processes)
    )
    first = min((s for s in samples if s.gpus), key=lambda s: s.monotonic_ns, default=None)
    if by_pid or first is None:
        return by_pid
    before = {gpu.index: gpu.memory_used_bytes or 0 for gpu in first.gpus or ()}
    return frozenset(
        gpu.index
        for s in chosen
        for gpu in s.gpus or ()
        if (gpu.memory_used_bytes or 0) - before.get(gpu.index, 0) >= CONTEXT_BYTES
    )


def utilisation(chosen: Sequence[HostSample], used: frozenset[int]) -> float | Missing:
    """Mean over the GPUs that the job uses and over time."""
    nothing = _nothing_known(chosen, used)
    if nothing is not None:
        return nothing
    rates = [(gpu.utilisation, s.interval_ns) for s, gpu in _readings(chosen, used) if gpu.utilisation is not None]
    total = sum(ns for _, ns in rates)
    return sum(rate * ns for rate, ns in rates) / total if total else Missing("the GPU does not report it (MIG)")


def idle(chosen: Sequence[HostSample], used: frozenset[int]) -> tuple[int, ...]:
    """GPUs on which nothing ran, and nobody kept memory, in any sample of the span."""
    readings = [gpu for s in chosen for gpu in s.gpus or ()]
    busy = {
        gpu.index
        for gpu in readings
        if gpu.processes or (gpu.utilisation or 0.0) >= IDLE_UTILISATION or (gpu.memory_used_bytes or 0) >= IDLE_BYTES
    }
    return tuple(sorted({gpu.index for gpu in readings} - busy - used))


def other_processes(chosen: Sequence[HostSample], used: frozenset[int]) -> tuple[GpuProcess, ...]:
    """Processes of others on the job's GPUs in any sample, the largest first; only where the job's own are known."""
    found = {
        (process.pid, process.gpu): process
        for sample, gpu in _readings(chosen, used)
        for process in gpu.processes
        if sample.job_gpu_pids and process.pid not in sample.job_gpu_pids
    }
    return tuple(sorted(found.values(), key=lambda p: (-(p.memory_bytes or 0), p.pid, p.gpu)))


def throttling(
    chosen: Sequence[HostSample], used: frozenset[int], cards: Sequence[Gpu]
) -> tuple[float | Missing, float | Missing]:
    """Share of readings in which a GPU of the job was slowed, and its mean clock then over the highest."""
    nothing = _nothing_known(chosen, used)
    if nothing is not None:
        return nothing, nothing
    known = [gpu for _, gpu in _readings(chosen, used) if gpu.throttle_reasons is not None]
    if not known:
        silent = Missing("the GPU does not say why its clocks are low")
        return silent, silent
    slowed = [gpu for gpu in known if (gpu.throttle_reasons or 0) & SLOWED]
    highest = {card.index: card.max_sm_clock_mhz for card in cards}
    clocks = [
        gpu.sm_clock_mhz / top for gpu in slowed if gpu.sm_clock_mhz is not None and (top := highest.get(gpu.index))
    ]
    mean = sum(clocks) / len(clocks) if clocks else Missing("the GPU does not report its clocks")
    return len(slowed) / len(known), mean


def _nothing_known(chosen: Sequence[HostSample], used: frozenset[int]) -> Missing | None:
    """Why nothing can be said about the job's GPUs; None when something can."""
    if all(s.gpus is None for s in chosen):
        return Missing("NVML could not be read")
    if not any(s.gpus for s in chosen):
        return Missing("no GPU")
    return None if used else Missing("the job was seen on no GPU")


def _readings(chosen: Sequence[HostSample], used: frozenset[int]) -> Iterator[tuple[HostSample, GpuSample]]:
    """The GPUs in use, sample by sample."""
    return ((s, gpu) for s in chosen for gpu in s.gpus or () if gpu.index in used)
