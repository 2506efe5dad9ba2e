"""From samples of the machine to `Host`, and from machine.json to `Machine`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..recording.host import CpuSample, HostSample, JobSample, NeighbourSample
from ..recording.machine import MachineRecord
from . import gpus
from .model import Cpu, Gpu, Host, Machine, Missing, Neighbour, PciGpu

LEAST_SAMPLES = 2
"""Fewer whole samples in the span, and those that only overlap it are used too."""
MOST_NEIGHBOURS = 5

T = TypeVar("T")


def build_host(
    samples: Sequence[HostSample], start_ns: int, end_ns: int, max_clocks: Mapping[int, int] | None = None
) -> Host | Missing:
    """The machine between two moments of CLOCK_MONOTONIC; `samples` are all of the run, in any order.

    Means are weighted by time. Memory available is the least, the job's memory the most, swap-in the sum.
    `max_clocks` are the GPUs' highest SM clocks by index.
    """
    chosen = samples_between(samples, start_ns, end_ns)
    if not chosen:
        return Missing(
            "no sample of the machine falls into the steady steps",
            "run longer, with more --steps" if samples else "record the job again with perfdoctor as its parent",
        )
    jobs = [(s.job, s.interval_ns) for s in chosen if s.job is not None]
    cpus = [(s.cpus, s.interval_ns) for s in chosen if s.cpus is not None]
    both = [(s, s.interval_ns) for s in chosen if s.job is not None and s.cpus is not None]
    available = [s.memory_available_bytes for s in chosen if s.memory_available_bytes is not None]
    if not both or not available:
        lost = "CPU time" if not both else "memory"
        return Missing(f"the {lost} of the job and its machine could not be read", "see the monitor's faults")
    gpu_throttled, gpu_clock = gpus.throttling(samples, chosen, max_clocks or {})
    return Host(
        samples=len(chosen),
        job_cpus=_mean(jobs, _job_cpus),
        others_cpus=max(0.0, _mean(both, _others_cpus)),
        idle_cpus=_mean(cpus, lambda cpu: cpu.idle + cpu.iowait),
        steal_share=_ratio(_mean(cpus, lambda cpu: cpu.steal), _mean(cpus, _all_cpus)),
        job_run_delay_share=_run_delay_share([job for job, _ in jobs]),
        throttled_share=_throttled_share(chosen),
        pressure_share=_pressure_share([(s.pressure_avg10, s.interval_ns) for s in chosen], "CPU"),
        memory_available_bytes=min(available),
        swap_in_bytes=float(sum(s.swap_in_bytes or 0 for s in chosen)),
        peak_job_bytes=max(job.rss_bytes for job, _ in jobs),
        neighbours=_neighbours(_scans_between(samples, start_ns, end_ns)),
        gpu_utilisation=gpus.utilisation(samples, chosen),
        seconds=sum(s.interval_ns for s in chosen) / 1e9,
        throttled_time_share=_throttled_time_share(chosen),
        memory_pressure_share=_pressure_share([(s.memory_pressure_avg10, s.interval_ns) for s in chosen], "memory"),
        gpus_in_use=tuple(sorted(gpus.in_use(samples, chosen))),
        gpus_idle=gpus.idle(samples, chosen),
        gpu_strangers=gpus.strangers(samples, chosen),
        gpu_throttled_share=gpu_throttled,
        gpu_throttled_clock=gpu_clock,
    )


def build_monitor_cpus(samples: Sequence[HostSample], start_ns: int, end_ns: int) -> float | Missing:
    """CPU cores that perfdoctor itself used between two moments, for `OwnCost.monitor_cpus`."""
    chosen = samples_between(samples, start_ns, end_ns)
    own = [(s.own_cpus, s.interval_ns) for s in chosen if s.own_cpus is not None]
    return _mean(own, float) if own else Missing("no sample of the machine falls into the steady steps")


def build_machine(record: MachineRecord) -> Machine:
    """The machine as the job found it when it started."""
    return Machine(
        cpu_model=record.cpu_model,
        logical_cpus=record.logical_cpus,
        physical_cores=record.physical_cores,
        affinity_cpus=record.affinity_cpus,
        quota_cpus=record.quota_cpus,
        memory_bytes=record.memory_bytes,
        kernel=record.kernel,
        page_fault_ns=record.page_fault_ns,
        gpus=tuple(
            Gpu(gpu.index, gpu.name, gpu.memory_bytes, gpu.driver, gpu.capability, gpu.max_sm_clock_mhz)
            for gpu in record.gpus
        ),
        gpus_absent=record.gpus_absent,
        # 12040 is 12.4: https://docs.nvidia.com/deploy/nvml-api, nvmlSystemGetCudaDriverVersion
        cuda_driver=None
        if record.cuda_driver is None
        else (record.cuda_driver // 1000, record.cuda_driver % 1000 // 10),
        pci_gpus=tuple(PciGpu(gpu.vendor, gpu.device, gpu.driver) for gpu in record.pci_gpus),
        gpu_nodes=record.gpu_nodes,
        cpu=Cpu(record.cpu.flags, record.cpu.hypervisor, record.cpu.vendor, record.cpu.family, record.cpu.model),
        libc=record.libc,
        container=record.container,
    )


def build_max_clocks(record: MachineRecord) -> dict[int, int]:
    """Highest SM clock by GPU, as far as told."""
    return {gpu.index: gpu.max_sm_clock_mhz for gpu in record.gpus if gpu.max_sm_clock_mhz}


def samples_between(samples: Sequence[HostSample], start_ns: int, end_ns: int) -> tuple[HostSample, ...]:
    """Samples whose whole interval lies in the span; when those are too few, all that overlap it."""
    inside = [s for s in samples if s.monotonic_ns - s.interval_ns >= start_ns and s.monotonic_ns <= end_ns]
    if len(inside) >= LEAST_SAMPLES:
        return tuple(inside)
    return tuple(s for s in samples if s.monotonic_ns > start_ns and s.monotonic_ns - s.interval_ns < end_ns)


def _job_cpus(job: JobSample) -> float:
    return job.user_cpus + job.system_cpus


def _others_cpus(sample: HostSample) -> float:
    """Busy CPU that is neither the job's nor ours. Clock ticks of the two sides differ by a few per cent."""
    if sample.cpus is None or sample.job is None:
        return 0.0
    return sample.cpus.busy - _job_cpus(sample.job) - (sample.own_cpus or 0.0)


def _all_cpus(cpu: CpuSample) -> float:
    return cpu.busy + cpu.idle + cpu.iowait + cpu.steal


def _run_delay_share(jobs: Sequence[JobSample]) -> float | Missing:
    pairs = [(job.run_ns, job.run_delay_ns) for job in jobs if job.run_ns is not None and job.run_delay_ns is not None]
    if not pairs:
        return Missing("the kernel keeps no schedstat", "use a kernel with CONFIG_SCHED_INFO")
    run, delay = sum(run for run, _ in pairs), sum(delay for _, delay in pairs)
    return _ratio(delay, run + delay)


def _throttled_share(samples: Sequence[HostSample]) -> float | Missing:
    """Groups without a quota count no periods: then nothing was throttled."""
    readings = [s.throttling for s in samples if s.throttling is not None]
    if not readings:
        return Missing("no CPU control group is visible")
    return _ratio(sum(r.throttled_periods for r in readings), sum(r.periods for r in readings))


def _throttled_time_share(samples: Sequence[HostSample]) -> float | Missing:
    readings = [(s.throttling.throttled_seconds, s.interval_ns) for s in samples if s.throttling is not None]
    if not readings:
        return Missing("no CPU control group is visible")
    return _ratio(sum(seconds for seconds, _ in readings) * 1e9, sum(ns for _, ns in readings))


def _pressure_share(readings: Sequence[tuple[float | None, int]], resource: str) -> float | Missing:
    known = [(pressure, ns) for pressure, ns in readings if pressure is not None]
    if not known:
        return Missing(f"the kernel reports no {resource} pressure", "start it with psi=1")
    return _mean(known, float)


def _scans_between(samples: Sequence[HostSample], start_ns: int, end_ns: int) -> list[NeighbourSample]:
    """Scans that overlap the span; they are longer than samples, so that few would lie inside."""
    return [
        s.neighbours
        for s in samples
        if s.neighbours is not None and s.monotonic_ns > start_ns and s.monotonic_ns - s.neighbours.interval_ns < end_ns
    ]


def _neighbours(scans: Sequence[NeighbourSample]) -> tuple[Neighbour, ...]:
    """Mean over the scans, by program: what a scan does not list used little during it.

    Of a build or a test suite each process lives for seconds; only together are they what the job met.
    """
    total_ns = sum(scan.interval_ns for scan in scans)
    used: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for scan in scans:
        for process in scan.top:
            used[process.command, process.user][process.pid] += round(process.cpus * scan.interval_ns)
    programs = [
        Neighbour(
            pid=min(by_pid, key=lambda pid: (-by_pid[pid], pid)),
            command=command,
            user=user,
            cpus=by_pid.total() / total_ns,
            processes=len(by_pid),
        )
        for (command, user), by_pid in used.items()
    ]
    return tuple(sorted(programs, key=lambda one: (-one.cpus, one.pid))[:MOST_NEIGHBOURS])


def _mean(values: Sequence[tuple[T, int]], of: Callable[[T], float]) -> float:
    """Of a quantity of each sample, weighted by the time it covers."""
    total = sum(weight for _, weight in values)
    return sum(of(value) * weight for value, weight in values) / total if total else 0.0


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
