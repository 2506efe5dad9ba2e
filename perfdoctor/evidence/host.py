"""From samples of the machine to `Host`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from ..recording.host import HostSample, JobSample, NeighbourSample, OwnProcess
from ..recording.machine import Gpu
from ..recording.process import Started
from . import gpus
from .model import Helper, Host, Missing, Neighbour

LEAST_SAMPLES = 2
"""Fewer whole samples in the span, and those that only overlap it are used too."""
MOST_NEIGHBOURS = 5
NEVER_SLEEPS = 0.8
"""Of the samples, in which a process never slept: what works in bursts does in few."""

BUSY_HELPER = 0.2
"""Cores, from which on a process that also sleeps is told: a twentieth of the CPUs of a small machine."""


def build_host(
    samples: Sequence[HostSample],
    start_ns: int,
    end_ns: int,
    cards: Sequence[Gpu] = (),
    training: Collection[int] = (),
    started: Iterable[Started] = (),
) -> Host | Missing:
    """The machine between two moments of CLOCK_MONOTONIC; `samples` are all of the run, in any order.

    Means are weighted by time. Memory available is the least, the job's memory the most, swap-in the sum.
    `cards` are the machine's GPUs, `training` the processes that train and those that make batches, `started` those
    whose start was seen.
    """
    chosen = samples_between(samples, start_ns, end_ns)
    if not chosen:
        return Missing(
            "no sample of the machine falls into the steady steps",
            "run longer, with more --steps" if samples else "record the job again with perfdoctor as its parent",
        )
    jobs = [s.job for s in chosen if s.job is not None]
    cpus = [(s.cpus, s.interval_ns) for s in chosen if s.cpus is not None]
    # Busy CPU that is neither the job's nor ours. Clock ticks of the two sides differ by a few per cent.
    others = [
        (s.cpus.busy - s.job.cpus - s.monitor_cpus, s.interval_ns)
        for s in chosen
        if s.job is not None and s.cpus is not None
    ]
    available = [s.memory_available_bytes for s in chosen if s.memory_available_bytes is not None]
    if not others or not available:
        lost = "CPU time" if not others else "memory"
        return Missing(f"the {lost} of the job and its machine could not be read", "see the monitor's faults")
    throttled_share, throttled_time_share = _throttling(chosen)
    gpus_in_use = gpus.in_use(samples, chosen)
    gpu_throttled, gpu_clock = gpus.throttling(chosen, gpus_in_use, cards)
    return Host(
        samples=len(chosen),
        seconds=sum(s.interval_ns for s in chosen) / 1e9,
        job_cpus=_mean((s.job.cpus, s.interval_ns) for s in chosen if s.job is not None),
        others_cpus=max(0.0, _mean(others)),
        idle_cpus=_mean((cpu.idle + cpu.iowait, ns) for cpu, ns in cpus),
        steal_share=_ratio(
            _mean((cpu.steal, ns) for cpu, ns in cpus),
            _mean((cpu.busy + cpu.idle + cpu.iowait + cpu.steal, ns) for cpu, ns in cpus),
        ),
        job_run_delay_share=_run_delay_share(jobs),
        throttled_share=throttled_share,
        throttled_time_share=throttled_time_share,
        pressure_share=_pressure_share([(s.pressure_share, s.interval_ns) for s in chosen], "CPU"),
        memory_pressure_share=_pressure_share([(s.memory_pressure_share, s.interval_ns) for s in chosen], "memory"),
        memory_available_bytes=min(available),
        swap_in_bytes=float(sum(s.swap_in_bytes or 0 for s in chosen)),
        peak_job_bytes=max(job.rss_bytes for job in jobs),
        neighbours=_neighbours(_scans_between(samples, start_ns, end_ns)),
        gpu_utilisation=gpus.utilisation(chosen, gpus_in_use),
        gpus_in_use=tuple(sorted(gpus_in_use)),
        gpus_idle=gpus.idle(chosen, gpus_in_use),
        gpu_other_processes=gpus.other_processes(chosen, gpus_in_use),
        gpu_throttled_share=gpu_throttled,
        gpu_throttled_clock=gpu_clock,
        helpers=_helpers(jobs, training, started),
    )


def build_monitor_cpus(samples: Sequence[HostSample], start_ns: int, end_ns: int) -> float | Missing:
    """CPU cores that perfdoctor itself used between two moments, for `OwnCost.monitor_cpus`."""
    chosen = samples_between(samples, start_ns, end_ns)
    if not chosen:
        return Missing("no sample of the machine falls into the steady steps")
    return _mean((s.monitor_cpus, s.interval_ns) for s in chosen)


def samples_between(samples: Sequence[HostSample], start_ns: int, end_ns: int) -> tuple[HostSample, ...]:
    """Samples whose whole interval lies in the span; when those are too few, all that overlap it."""
    inside = [s for s in samples if s.monotonic_ns - s.interval_ns >= start_ns and s.monotonic_ns <= end_ns]
    if len(inside) >= LEAST_SAMPLES:
        return tuple(inside)
    return tuple(s for s in samples if s.monotonic_ns > start_ns and s.monotonic_ns - s.interval_ns < end_ns)


def _run_delay_share(jobs: Sequence[JobSample]) -> float | Missing:
    pairs = [(job.run_ns, job.run_delay_ns) for job in jobs if job.run_ns is not None and job.run_delay_ns is not None]
    if not pairs:
        return Missing("the kernel keeps no schedstat", "use a kernel with CONFIG_SCHED_INFO")
    run, delay = sum(run for run, _ in pairs), sum(delay for _, delay in pairs)
    return _ratio(delay, run + delay)


def _throttling(samples: Sequence[HostSample]) -> tuple[float | Missing, float | Missing]:
    """Shares of the control group's periods in which it was throttled, and of the time for which it was."""
    readings = [(s.throttling, s.interval_ns) for s in samples if s.throttling is not None]
    if not readings:
        invisible = Missing("no CPU control group is visible")
        return invisible, invisible
    # Groups without a quota count no periods: then nothing was throttled.
    periods = _ratio(sum(t.throttled_periods for t, _ in readings), sum(t.periods for t, _ in readings))
    return periods, _ratio(sum(t.throttled_seconds for t, _ in readings) * 1e9, sum(ns for _, ns in readings))


def _pressure_share(readings: Sequence[tuple[float | None, int]], resource: str) -> float | Missing:
    known = [(pressure, ns) for pressure, ns in readings if pressure is not None]
    if not known:
        return Missing(f"the kernel reports no {resource} pressure", "start it with psi=1")
    return _mean(known)


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


def _helpers(jobs: Sequence[JobSample], training: Collection[int], started: Iterable[Started]) -> tuple[Helper, ...]:
    """Mean over all samples; of what never slept over those that it is in."""
    used: defaultdict[tuple[int, str], list[OwnProcess]] = defaultdict(list)
    for process in (process for job in jobs for process in job.busy if process.pid not in training):
        used[process.pid, process.command].append(process)
    lines = {one.pid: (one.site, one.does) for one in started}
    found = []
    for (pid, command), seen in used.items():
        never_sleeps = sum(one.awake for one in seen) >= NEVER_SLEEPS * len(jobs)
        cpus = sum(one.cpus for one in seen) / (len(seen) if never_sleeps else len(jobs))
        if never_sleeps or cpus >= BUSY_HELPER:
            found.append(Helper(pid, command, cpus, never_sleeps, *lines.get(pid, ())))
    return tuple(sorted(found, key=lambda one: (-one.cpus, one.pid)))


def _mean(values: Iterable[tuple[float, int]]) -> float:
    """Of a quantity and the time that it covers, weighted by that."""
    pairs = list(values)
    return _ratio(sum(value * weight for value, weight in pairs), sum(weight for _, weight in pairs))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
