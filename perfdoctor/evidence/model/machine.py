"""What the job could use, and who else used it."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing

NO_GPU = Missing("no GPU")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML sees it."""

    index: int
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What the job could use. `usable_cpus` is what it may use at once: affinity capped by the cgroup quota."""

    cpu_model: str
    logical_cpus: int
    physical_cores: int | None
    affinity_cpus: int
    quota_cpus: float | None
    """CPU time per wall time that the cgroup allows; None without a quota."""
    memory_bytes: int
    kernel: str
    page_fault_ns: float | None
    """Measured cost of one first touch of a 4 KiB page on this machine."""
    gpus: tuple[Gpu, ...] = ()

    @property
    def usable_cpus(self) -> float:
        return self.affinity_cpus if self.quota_cpus is None else min(self.affinity_cpus, self.quota_cpus)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process that is not ours and used CPU while the job ran."""

    pid: int
    command: str
    user: str
    cpus: float


@dataclass(frozen=True, slots=True)
class Host:
    """The machine over the steady span, sampled from outside. CPU in cores: 1.0 is one core kept busy."""

    samples: int
    job_cpus: float
    others_cpus: float
    idle_cpus: float
    steal_share: float
    job_run_delay_share: float | Missing
    """Of all threads of the job: time runnable without a CPU over that plus time on one."""
    throttled_share: float | Missing
    """Share of cgroup periods in which the job was throttled."""
    pressure_share: float | Missing
    """PSI cpu `some`, avg10, mean."""
    memory_available_bytes: int
    swap_in_bytes: float
    peak_job_bytes: int
    neighbours: tuple[Neighbour, ...]
    """The largest first."""
    gpu_utilisation: float | Missing = NO_GPU
    """Mean, fraction of 1."""
