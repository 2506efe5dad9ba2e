"""Reads host.jsonl, what the monitor saw from outside the job.

A line cut by a crash, a field of a newer version and an unknown kind of record are passed over; a field that
is absent or of another type is None.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .fields import Fields, decode, integer, number, objects, text


@dataclass(frozen=True, slots=True)
class JobSample:
    """The job's process tree over one interval; CPU in cores."""

    processes: int
    threads: int
    user_cpus: float
    system_cpus: float
    rss_bytes: int
    """Summed: pages that processes share count once for each."""
    read_bytes: int
    written_bytes: int
    """Through system calls, page cache included."""
    disk_read_bytes: int
    disk_written_bytes: int
    run_ns: int | None
    run_delay_ns: int | None
    """On a CPU, and runnable without one, of the threads alive at both ends."""


@dataclass(frozen=True, slots=True)
class CpuSample:
    """The CPUs that the job may use over one interval, in cores."""

    busy: float
    idle: float
    iowait: float
    steal: float


@dataclass(frozen=True, slots=True)
class ThrottlingSample:
    """The control group that was throttled longest over one interval."""

    group: str
    periods: int
    throttled_periods: int
    throttled_seconds: float


@dataclass(frozen=True, slots=True)
class NeighbourProcess:
    """A process that is not the job's, since the previous scan."""

    pid: int
    command: str
    user: str
    cpus: float


@dataclass(frozen=True, slots=True)
class NeighbourSample:
    """The largest of them."""

    interval_ns: int
    top: tuple[NeighbourProcess, ...]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a compute context on a GPU."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at the time of the sample."""

    index: int
    utilisation: float | None
    """Fraction of 1."""
    memory_used_bytes: int | None
    sm_clock_mhz: int | None
    throttle_reasons: int | None
    """Bit mask of nvmlClocksEventReasons."""
    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True, slots=True)
class HostSample:
    """What was seen from outside over the `interval_ns` before `monotonic_ns`."""

    wall_ns: int | None
    monotonic_ns: int
    interval_ns: int
    job: JobSample | None
    cpus: CpuSample | None
    throttling: ThrottlingSample | None
    pressure_avg10: float | None
    """Fraction of 1."""
    memory_available_bytes: int | None
    swap_in_bytes: int | None
    oom_kills: int | None
    """Since the job's control group was made."""
    neighbours: NeighbourSample | None
    """None between two scans."""
    gpus: tuple[GpuSample, ...] | None
    job_gpu_pids: tuple[int, ...]
    own_cpus: float | None
    """Of the perfdoctor process, in cores."""
    sample_cpu_ns: int | None
    memory_pressure_avg10: float | None = None
    """Fraction of 1."""


@dataclass(frozen=True, slots=True)
class HostFault:
    """A source that failed, the first time it did."""

    source: str
    error: str


@dataclass(frozen=True, slots=True)
class HostRecording:
    """One host.jsonl."""

    samples: tuple[HostSample, ...]
    faults: tuple[HostFault, ...]
    notes: tuple[str, ...]
    """What was passed over, as clauses."""


def read_host_file(path: Path) -> HostRecording:
    """Reads host.jsonl; a file that cannot be read is an empty recording with a note."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        return HostRecording((), (), (f"{path.name} cannot be read: {error.strerror or error}",))
    samples: list[HostSample] = []
    faults: list[HostFault] = []
    passed_over: Counter[str] = Counter()
    for line in lines:
        if not line.strip():
            continue
        fields = decode(line)
        kind = None if fields is None else fields.get("k")
        if fields is None:
            passed_over["cut or damaged"] += 1
        elif kind == "host":
            sample = _host_sample(fields)
            if sample is None:
                passed_over["sample without a time"] += 1
            else:
                samples.append(sample)
        elif kind == "fault":
            faults.append(HostFault(text(fields, "source"), text(fields, "error")))
        else:
            passed_over[f"of unknown kind {kind!r}"] += 1
    notes = tuple(f"{path.name}: {count} line(s) {what}" for what, count in passed_over.items())
    return HostRecording(tuple(samples), tuple(faults), notes)


def _host_sample(fields: Fields) -> HostSample | None:
    monotonic_ns, interval_ns = integer(fields, "monotonic_ns"), integer(fields, "interval_ns")
    if monotonic_ns is None or interval_ns is None:
        return None
    gpus = fields.get("gpus")
    pids = fields.get("job_gpu_pids")
    return HostSample(
        wall_ns=integer(fields, "wall_ns"),
        monotonic_ns=monotonic_ns,
        interval_ns=interval_ns,
        job=_job(fields.get("job")),
        cpus=_cpus(fields.get("cpus")),
        throttling=_throttling(fields.get("throttling")),
        pressure_avg10=number(fields, "pressure_avg10"),
        memory_available_bytes=integer(fields, "memory_available_bytes"),
        swap_in_bytes=integer(fields, "swap_in_bytes"),
        oom_kills=integer(fields, "oom_kills"),
        neighbours=_neighbours(fields.get("neighbours")),
        gpus=tuple(_gpu(gpu) for gpu in objects(gpus)) if isinstance(gpus, list) else None,
        job_gpu_pids=tuple(pid for pid in pids if isinstance(pid, int)) if isinstance(pids, list) else (),
        own_cpus=number(fields, "own_cpus"),
        sample_cpu_ns=integer(fields, "sample_cpu_ns"),
        memory_pressure_avg10=number(fields, "memory_pressure_avg10"),
    )


def _job(value: object) -> JobSample | None:
    if not isinstance(value, dict):
        return None
    user, system = number(value, "user_cpus"), number(value, "system_cpus")
    if user is None or system is None:
        return None
    return JobSample(
        processes=integer(value, "processes") or 0,
        threads=integer(value, "threads") or 0,
        user_cpus=user,
        system_cpus=system,
        rss_bytes=integer(value, "rss_bytes") or 0,
        read_bytes=integer(value, "read_bytes") or 0,
        written_bytes=integer(value, "written_bytes") or 0,
        disk_read_bytes=integer(value, "disk_read_bytes") or 0,
        disk_written_bytes=integer(value, "disk_written_bytes") or 0,
        run_ns=integer(value, "run_ns"),
        run_delay_ns=integer(value, "run_delay_ns"),
    )


def _cpus(value: object) -> CpuSample | None:
    if not isinstance(value, dict):
        return None
    busy, idle = number(value, "busy"), number(value, "idle")
    if busy is None or idle is None:
        return None
    return CpuSample(busy, idle, number(value, "iowait") or 0.0, number(value, "steal") or 0.0)


def _throttling(value: object) -> ThrottlingSample | None:
    if not isinstance(value, dict):
        return None
    periods, throttled = integer(value, "periods"), integer(value, "throttled_periods")
    if periods is None or throttled is None:
        return None
    return ThrottlingSample(text(value, "group"), periods, throttled, number(value, "throttled_seconds") or 0.0)


def _neighbours(value: object) -> NeighbourSample | None:
    interval_ns = integer(value, "interval_ns") if isinstance(value, dict) else None
    if not isinstance(value, dict) or interval_ns is None:
        return None
    return NeighbourSample(
        interval_ns=interval_ns,
        top=tuple(
            NeighbourProcess(
                pid=integer(process, "pid") or 0,
                command=text(process, "command"),
                user=text(process, "user"),
                cpus=number(process, "cpus") or 0.0,
            )
            for process in objects(value.get("top"))
        ),
    )


def _gpu(fields: Fields) -> GpuSample:
    return GpuSample(
        index=integer(fields, "index") or 0,
        utilisation=number(fields, "utilisation"),
        memory_used_bytes=integer(fields, "memory_used_bytes"),
        sm_clock_mhz=integer(fields, "sm_clock_mhz"),
        throttle_reasons=integer(fields, "throttle_reasons"),
        processes=tuple(
            GpuProcess(integer(process, "pid") or 0, integer(process, "memory_bytes"))
            for process in objects(fields.get("processes"))
        ),
    )
