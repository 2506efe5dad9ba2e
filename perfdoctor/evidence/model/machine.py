"""What the job could use, and who else used it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...recording.base import Missing

NO_GPU = Missing("no GPU")
NOT_SAMPLED = Missing("not in this recording", "record the job again")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML sees it."""

    index: int
    name: str
    memory_bytes: int
    driver: str
    capability: tuple[int, int] | None = None
    """CUDA compute capability."""
    max_sm_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A display or 3D controller on the PCI bus, with or without a driver."""

    vendor: str
    """`nvidia`, `intel`, `amd`."""
    device: str
    driver: str
    """Kernel module bound to it; "" without one."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """What the CPU says of itself."""

    flags: tuple[str, ...] = ()
    """Of those that libraries choose kernels by: `avx2`, `avx512f`, `amx_bf16`, `sve`; empty when unknown."""
    hypervisor: bool = False
    """It is a virtual machine's."""
    vendor: str = ""
    family: int | None = None
    model: int | None = None


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
    gpus_absent: str = ""
    """Why NVML lists none."""
    cuda_driver: tuple[int, int] | None = None
    """Newest CUDA version that the driver runs."""
    pci_gpus: tuple[PciGpu, ...] = ()
    gpu_nodes: int = 0
    """Device files of NVIDIA GPUs."""
    cpu: Cpu = field(default_factory=Cpu)
    libc: str = ""
    """`glibc 2.36`; "" when the recording does not say."""
    container: str = ""
    """Its image, `none`, or that a container does not say; "" when the recording does not."""

    @property
    def usable_cpus(self) -> float:
        return self.affinity_cpus if self.quota_cpus is None else min(self.affinity_cpus, self.quota_cpus)


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
class GpuStranger:
    """A process that is not ours with a compute context on a GPU that the job uses."""

    pid: int
    gpu: int
    memory_bytes: int | None


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
    """Mean over the GPUs in use, fraction of 1."""
    seconds: float = 0.0
    """Time that the samples cover."""
    throttled_time_share: float | Missing = NOT_SAMPLED
    """Time for which the control group's threads were stopped, summed over its CPUs, over wall time."""
    memory_pressure_share: float | Missing = NOT_SAMPLED
    """PSI memory `some`, avg10, mean."""
    gpus_in_use: tuple[int, ...] = ()
    gpus_idle: tuple[int, ...] = ()
    """GPUs that nobody used."""
    gpu_strangers: tuple[GpuStranger, ...] = ()
    """Processes of others on the GPUs in use; always empty inside a container, where NVML names the host's pids."""
    gpu_throttled_share: float | Missing = NO_GPU
    """Share of samples in which a GPU in use was slowed by heat or power delivery."""
    gpu_throttled_clock: float | Missing = NO_GPU
    """Mean SM clock in those samples over the card's highest."""
