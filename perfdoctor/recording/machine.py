"""What the machine lets the job use: machine.json, which the monitor writes when the job starts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML sees it."""

    index: int
    name: str
    memory_bytes: int
    """0 when the board does not say."""
    driver: str
    """Version of the driver."""
    capability: tuple[int, int] | None = None
    """CUDA compute capability."""
    max_sm_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A display or 3D controller on the PCI bus, whether or not a driver is bound to it."""

    vendor: str
    """`nvidia`, `intel`, `amd`."""
    device: str
    """PCI device id, `0x2330`."""
    driver: str
    """Kernel module bound to it, "" without one; `vfio-pci` hands it to a virtual machine."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """What /proc/cpuinfo says of the first CPU."""

    flags: tuple[str, ...] = ()
    """Of those that libraries choose kernels by, sorted: `avx2`, `avx512f`, `amx_bf16`, `sve`; empty when unknown."""
    hypervisor: bool = False
    """The CPU says that it is a virtual machine's."""
    vendor: str = ""
    """`AuthenticAMD`, `GenuineIntel`; "" elsewhere."""
    family: int | None = None
    model: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as the job found it when it started."""

    cpu_model: str
    logical_cpus: int
    """Online CPUs of the machine, whoever may use them."""
    physical_cores: int | None
    affinity_cpus: int
    """CPUs that the job may run on."""
    quota_cpus: float | None
    """CPU time per wall time that the control group allows; None without a quota."""
    memory_bytes: int
    """Installed, or the control group's limit when that is less."""
    kernel: str
    page_fault_ns: float | None
    """Measured cost of the first touch of one page of anonymous memory."""
    gpus: tuple[Gpu, ...] = ()
    gpus_absent: str = ""
    """Why NVML lists none, as a clause; "" when there are some."""
    cuda_driver: tuple[int, int] | None = None
    """Newest CUDA version that the driver runs: (12, 4)."""
    pci_gpus: tuple[PciGpu, ...] = ()
    gpu_nodes: int = 0
    """Device files of NVIDIA GPUs."""
    cpu: Cpu = field(default_factory=Cpu)
    libc: str = "unknown"
    """`glibc 2.36`; "unknown" where the C library does not say."""
    container: str = "none"
    """The container's image, or that a container does not say, or `none`."""
    swap_bytes: int = 0

    @property
    def usable_cpus(self) -> float:
        """CPUs that the job may keep busy at once: its affinity, limited by the quota."""
        return self.affinity_cpus if self.quota_cpus is None else min(self.affinity_cpus, self.quota_cpus)
