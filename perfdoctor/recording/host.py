"""What the monitor sees from outside the job: host.jsonl, one line a sample.

Each line is an object whose `k` names its kind. The first is `{"k": "format", "version": ...}`; then come `host`, a
`HostSample`, and `fault`, a `HostFault`. CPU use is in cores: 1.0 is one core kept busy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """One of the job's processes that used CPU over one interval: a rank, a worker, or a helper."""

    pid: int
    command: str
    """The kernel's name for it, at most 15 characters."""
    cpus: float
    awake: bool = True
    """It hardly ever slept: what polls does not."""


@dataclass(frozen=True, slots=True)
class JobSample:
    """The job's process tree over one interval."""

    cpus: float
    """User and system time, in cores."""
    rss_bytes: int
    """Resident memory at its end, summed: pages that processes share count once for each."""
    run_ns: int | None
    run_delay_ns: int | None
    """On a CPU, and runnable without one, of the threads alive at both ends; None if the kernel is silent."""
    busy: tuple[OwnProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuSample:
    """How the CPUs that the job may use spent one interval, in cores.

    These are the CPUs of perfdoctor's own affinity: on a machine shared by pinning, another job's CPUs are neither busy
    nor idle for this one.
    """

    busy: float
    idle: float
    iowait: float
    """Idle with a read or write outstanding."""
    steal: float
    """Taken by the hypervisor."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """CFS bandwidth counters of one control group: over one interval, or since the group was made."""

    group: str
    """Path of the group's directory."""
    periods: int
    """Enforcement periods in which the group wanted CPU; 0 in a group without a quota."""
    throttled_periods: int
    throttled_seconds: float
    """Summed over the CPUs, so it may exceed wall time."""


@dataclass(frozen=True, slots=True)
class NeighbourProcess:
    """A process that is not the job's, since the previous scan."""

    pid: int
    command: str
    """Its name, and for an interpreter its script; never arguments, which may hold secrets."""
    user: str
    cpus: float


@dataclass(frozen=True, slots=True)
class NeighbourSample:
    """The processes of others that used most CPU, the largest first."""

    interval_ns: int
    """Since the previous scan: scans are rarer than samples."""
    top: tuple[NeighbourProcess, ...]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a compute context on a GPU."""

    pid: int
    """In the host's process namespace: in a container it may match nothing."""
    gpu: int
    """Index of the GPU."""
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at the time of the sample; None is what it does not report."""

    index: int
    utilisation: float | None
    """Fraction of the driver's last sampling period in which any kernel ran: 1.0 does not mean full use."""
    memory_used_bytes: int | None
    sm_clock_mhz: int | None
    throttle_reasons: int | None
    """Bit mask, nvmlClocksEventReasons: 0x8, 0x40, 0x80 (hardware) and 0x20 (software thermal) cost time."""
    processes: tuple[GpuProcess, ...]
    temperature_c: int | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """One sample. It covers the `interval_ns` before `monotonic_ns`; a source that failed is None."""

    monotonic_ns: int
    """CLOCK_MONOTONIC, which all processes of a machine share."""
    interval_ns: int
    job: JobSample | None
    cpus: CpuSample | None
    throttling: Throttling | None
    """Of the group that was throttled longest; None also without a CPU control group."""
    pressure_share: float | None
    """PSI cpu `some`, avg10, of the job's control group, or of the machine: fraction of 1."""
    memory_pressure_share: float | None
    """PSI memory `some`, avg10, of the same."""
    memory_available_bytes: int | None
    """On the machine, or below the control group's limit when that is less."""
    swap_in_bytes: int | None
    """By the whole machine."""
    neighbours: NeighbourSample | None
    """None also between two scans."""
    gpus: tuple[GpuSample, ...] | None
    job_gpu_pids: tuple[int, ...]
    """The job's processes among those on the GPUs; none in a container, where NVML tells the host's pids."""
    monitor_cpus: float
    """CPU of the whole perfdoctor process, in cores."""
    clock_mhz: float | None = None
    """Of the CPUs that the job may use, mean; None also where the system shows none."""


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
