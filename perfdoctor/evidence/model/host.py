"""Who used the machine while the job took its steady steps."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import NO_LINE, Missing, Site
from ...recording.host import GpuProcess


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A program that is not ours and used CPU while the job ran: its processes of one user, together."""

    pid: int
    """Of its busiest process."""
    command: str
    user: str
    cpus: float
    processes: int = 1
    """How many were seen, at once or one after another."""

    @property
    def who(self) -> str:
        """`python train.py (pid 12, user ann)`."""
        which = f"pid {self.pid}" if self.processes == 1 else f"{self.processes} processes, the busiest pid {self.pid}"
        return f"{self.command} ({which}, user {self.user})"


@dataclass(frozen=True, slots=True)
class Helper:
    """A process of the job that never slept or used much CPU, and neither trained nor made batches."""

    pid: int
    command: str
    cpus: float
    never_sleeps: bool = True
    started_at: Site | Missing = NO_LINE
    does: Site | Missing = NO_LINE
    """The first loop of the function that it runs, or where that begins."""

    @property
    def who(self) -> str:
        """`python (pid 12)`."""
        return f"{self.command} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine over the steady span, sampled from outside. CPU in cores: 1.0 is one core kept busy."""

    samples: int
    seconds: float
    """Time that the samples cover."""
    job_cpus: float
    others_cpus: float
    idle_cpus: float
    steal_share: float
    job_run_delay_share: float | Missing
    """Of all threads of the job: time runnable without a CPU over that plus time on one."""
    throttled_share: float | Missing
    """Share of cgroup periods in which the job was throttled."""
    throttled_time_share: float | Missing
    """Time for which the control group's threads were stopped, summed over its CPUs, over wall time."""
    pressure_share: float | Missing
    """PSI cpu `some`, avg10, mean."""
    memory_pressure_share: float | Missing
    """PSI memory `some`, avg10, mean."""
    memory_available_bytes: int
    swap_in_bytes: float
    peak_job_bytes: int
    neighbours: tuple[Neighbour, ...]
    """The largest first."""
    gpu_utilisation: float | Missing
    """Mean over the GPUs in use, fraction of 1."""
    gpus_in_use: tuple[int, ...]
    gpus_idle: tuple[int, ...]
    """GPUs that nobody used."""
    gpu_other_processes: tuple[GpuProcess, ...]
    """Those of others on the GPUs in use; always empty inside a container, where NVML names the host's pids."""
    gpu_throttled_share: float | Missing
    """Share of samples in which a GPU in use was slowed by heat or power delivery."""
    gpu_throttled_clock: float | Missing
    """Mean SM clock in those samples over the card's highest."""
    helpers: tuple[Helper, ...] = ()
    """The busiest first."""
