"""Reads machine.json, what the machine let the job use."""

from __future__ import annotations

from dataclasses import dataclass
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
            )
            for gpu in objects(fields.get("gpus"))
        ),
        gpus_absent=text(fields, "gpus_absent", ""),
    )


def _unusable(path: Path, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"{path} cannot be used: {why}",
        slug="recording-machine",
        advice="record the job again, or name the directory of a whole recording",
    )
