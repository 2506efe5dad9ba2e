"""GPU samples of the steady span: how busy, shared with whom, slowed by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..recording.host import GpuSample, HostSample
from .model import GpuStranger, Missing

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
        gpu.index
        for s in chosen
        for gpu in s.gpus or ()
        if any(process.pid in s.job_gpu_pids for process in gpu.processes)
    )
    if by_pid or not any(s.gpus for s in samples):
        return by_pid
    first = min((s for s in samples if s.gpus), key=lambda s: s.monotonic_ns)
    before = {gpu.index: gpu.memory_used_bytes for gpu in first.gpus or ()}
    return frozenset(
        gpu.index
        for s in chosen
        for gpu in s.gpus or ()
        if (gpu.memory_used_bytes or 0) - (before.get(gpu.index) or 0) >= CONTEXT_BYTES
    )


def absent(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> Missing | None:
    """Why nothing can be said about the job's GPUs; None when something can."""
    if all(s.gpus is None for s in chosen):
        return Missing("NVML could not be read")
    if not any(s.gpus for s in chosen):
        return Missing("no GPU")
    return None if in_use(samples, chosen) else Missing("the job was seen on no GPU")


def utilisation(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> float | Missing:
    """Mean over the GPUs that the job uses and over time."""
    nothing = absent(samples, chosen)
    if nothing is not None:
        return nothing
    rates = [(gpu.utilisation, ns) for gpu, ns in _readings(samples, chosen) if gpu.utilisation is not None]
    total = sum(ns for _, ns in rates)
    return sum(rate * ns for rate, ns in rates) / total if total else Missing("the GPU does not report it (MIG)")


def idle(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> tuple[int, ...]:
    """GPUs on which nothing ran, and nobody kept memory, in any sample of the span."""
    used = in_use(samples, chosen)
    readings = [gpu for s in chosen for gpu in s.gpus or ()]
    busy = {
        gpu.index
        for gpu in readings
        if gpu.processes or (gpu.utilisation or 0.0) >= IDLE_UTILISATION or (gpu.memory_used_bytes or 0) >= IDLE_BYTES
    }
    return tuple(sorted({gpu.index for gpu in readings} - busy - used))


def strangers(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> tuple[GpuStranger, ...]:
    """Processes of others on the job's GPUs in any sample, the largest first; only where the job's own are known."""
    used = in_use(samples, chosen)
    found: dict[tuple[int, int], int | None] = {}
    for sample in chosen:
        if not sample.job_gpu_pids:
            continue
        for gpu in sample.gpus or ():
            for process in gpu.processes if gpu.index in used else ():
                if process.pid not in sample.job_gpu_pids:
                    found[process.pid, gpu.index] = process.memory_bytes
    listed = [GpuStranger(pid, gpu, memory) for (pid, gpu), memory in found.items()]
    return tuple(sorted(listed, key=lambda s: (-(s.memory_bytes or 0), s.pid, s.gpu)))


def throttling(
    samples: Sequence[HostSample], chosen: Sequence[HostSample], max_clocks: Mapping[int, int]
) -> tuple[float | Missing, float | Missing]:
    """Share of readings in which a GPU of the job was slowed, and its mean clock then over the highest."""
    nothing = absent(samples, chosen)
    if nothing is not None:
        return nothing, nothing
    known = [gpu for gpu, _ in _readings(samples, chosen) if gpu.throttle_reasons is not None]
    if not known:
        silent = Missing("the GPU does not say why its clocks are low")
        return silent, silent
    slowed = [gpu for gpu in known if (gpu.throttle_reasons or 0) & SLOWED]
    clocks = [
        gpu.sm_clock_mhz / max_clocks[gpu.index]
        for gpu in slowed
        if gpu.sm_clock_mhz is not None and max_clocks.get(gpu.index)
    ]
    mean = sum(clocks) / len(clocks) if clocks else Missing("the GPU does not report its clocks")
    return len(slowed) / len(known), mean


def _readings(samples: Sequence[HostSample], chosen: Sequence[HostSample]) -> list[tuple[GpuSample, int]]:
    """Readings of the GPUs in use with the time that each covers."""
    used = in_use(samples, chosen)
    return [(gpu, s.interval_ns) for s in chosen for gpu in s.gpus or () if gpu.index in used]
