"""Reads machine.json, what the machine let the job use."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..errors import PerfdoctorError
from .fields import decode, integer, number, objects, text


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """One GPU of the machine."""

    index: int
    name: str
    memory_bytes: int
    driver: str
    capability: tuple[int, int] | None = None
    max_sm_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class PciGpuRecord:
    """A display or 3D controller on the PCI bus."""

    vendor: str
    device: str
    driver: str


@dataclass(frozen=True, slots=True)
class CpuRecord:
    """Abilities of the CPU; all empty in a recording of an older version."""

    flags: tuple[str, ...] = ()
    hypervisor: bool = False
    vendor: str = ""
    family: int | None = None
    model: int | None = None


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """machine.json."""

    cpu_model: str
    logical_cpus: int
    physical_cores: int | None
    affinity_cpus: int
    quota_cpus: float | None
    memory_bytes: int
    swap_bytes: int | None
    kernel: str
    libc: str
    page_fault_ns: float | None
    gpus: tuple[GpuRecord, ...]
    gpus_absent: str
    cuda_driver: int | None = None
    """12040 is 12.4."""
    pci_gpus: tuple[PciGpuRecord, ...] = ()
    gpu_nodes: int = 0
    cpu: CpuRecord = field(default_factory=CpuRecord)
    container: str = ""
    """"" in a recording of an older version."""


def read_machine_file(path: Path) -> MachineRecord:
    """Reads machine.json. Raises PerfdoctorError when it is absent or not what the monitor writes."""
    try:
        fields = decode(path.read_bytes())
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if fields is None:
        raise _unusable(path, "not a JSON object")
    logical = integer(fields, "logical_cpus")
    memory = integer(fields, "memory_bytes")
    if logical is None or memory is None:
        raise _unusable(path, "it does not say how many CPUs and how much memory there are")
    return MachineRecord(
        cpu_model=text(fields, "cpu_model"),
        logical_cpus=logical,
        physical_cores=integer(fields, "physical_cores"),
        affinity_cpus=integer(fields, "affinity_cpus") or logical,
        quota_cpus=number(fields, "quota_cpus"),
        memory_bytes=memory,
        swap_bytes=integer(fields, "swap_bytes"),
        kernel=text(fields, "kernel"),
        libc=text(fields, "libc"),
        page_fault_ns=number(fields, "page_fault_ns"),
        gpus=tuple(
            GpuRecord(
                index=integer(gpu, "index") or 0,
                name=text(gpu, "name"),
                memory_bytes=integer(gpu, "memory_bytes") or 0,
                driver=text(gpu, "driver"),
                capability=_capability(gpu.get("capability")),
                max_sm_clock_mhz=integer(gpu, "max_sm_clock_mhz"),
            )
            for gpu in objects(fields.get("gpus"))
        ),
        gpus_absent=text(fields, "gpus_absent", ""),
        cuda_driver=integer(fields, "cuda_driver"),
        pci_gpus=tuple(
            PciGpuRecord(text(gpu, "vendor"), text(gpu, "device"), text(gpu, "driver", ""))
            for gpu in objects(fields.get("pci_gpus"))
        ),
        gpu_nodes=integer(fields, "gpu_nodes") or 0,
        cpu=_cpu(fields.get("cpu")),
        container=text(fields, "container", ""),
    )


def _capability(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(number, int) for number in value):
        return None
    return value[0], value[1]


def _cpu(value: object) -> CpuRecord:
    if not isinstance(value, dict):
        return CpuRecord()
    flags = value.get("flags")
    return CpuRecord(
        flags=tuple(flag for flag in flags if isinstance(flag, str)) if isinstance(flags, list) else (),
        hypervisor=value.get("hypervisor") is True,
        vendor=text(value, "vendor", ""),
        family=integer(value, "family"),
        model=integer(value, "model"),
    )


def _unusable(path: Path, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"{path} cannot be used: {why}",
        slug="recording-machine",
        advice="record the job again, or name the directory of a whole recording",
    )
