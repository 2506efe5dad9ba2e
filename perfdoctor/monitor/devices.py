"""Accelerators and the CPU's abilities as the kernel lists them: also where no driver is installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PCI_VENDORS = {0x10DE: "nvidia", 0x8086: "intel", 0x1002: "amd"}
_DISPLAY_CLASS = 0x03
"""Base class of VGA and 3D controllers; data-centre boards are 0x0302."""
CPU_FLAGS = frozenset(
    [
        "sse4_1",
        "sse4_2",
        "avx",
        "fma",
        "f16c",
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_tile",
        "amx_bf16",
        "amx_int8",
        "amx_fp16",
        "asimd",
        "asimddp",
        "bf16",
        "i8mm",
        "sve",
        "sve2",
        "svebf16",
    ]
)
"""Those that libraries choose their kernels by."""


@dataclass(frozen=True, slots=True)
class CpuAbilities:
    """What /proc/cpuinfo says of the first CPU."""

    flags: tuple[str, ...] = ()
    """Of `CPU_FLAGS`, sorted; empty where cpuinfo has none."""
    hypervisor: bool = False
    """The CPU says that it is a virtual machine's."""
    vendor: str = ""
    """`AuthenticAMD`, `GenuineIntel`; "" elsewhere."""
    family: int | None = None
    model: int | None = None


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A display or 3D controller on the PCI bus, whether or not a driver is bound to it."""

    vendor: str
    """`nvidia`, `intel`, `amd`."""
    device: str
    """PCI device id, `0x2330`."""
    driver: str
    """Kernel module bound to it, "" without one; `vfio-pci` hands it to a virtual machine."""


def read_cpu_abilities(root: Path) -> CpuAbilities:
    """Raises nothing: what is not there is empty."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return CpuAbilities()
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = frozenset(fields.get("flags", fields.get("Features", "")).split())
    return CpuAbilities(
        flags=tuple(sorted(flags & CPU_FLAGS)),
        hypervisor="hypervisor" in flags,
        vendor=fields.get("vendor_id", ""),
        family=_whole(fields.get("cpu family", "")),
        model=_whole(fields.get("model", "")),
    )


def read_pci_gpus(root: Path) -> tuple[PciGpu, ...]:
    """From sysfs, in the order of their addresses. Raises nothing."""
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor, kind = _hex(device / "vendor"), _hex(device / "class")
        if vendor not in PCI_VENDORS or kind is None or kind >> 16 != _DISPLAY_CLASS:
            continue
        try:
            driver = (device / "driver").resolve(strict=True).name
        except OSError:
            driver = ""
        found.append(PciGpu(PCI_VENDORS[vendor], f"0x{_hex(device / 'device') or 0:04x}", driver))
    return tuple(found)


def count_device_nodes(root: Path) -> int:
    """/dev/nvidia0, /dev/nvidia1, ...: a container may see the PCI bus, but only use GPUs that have a node."""
    return sum(node.name.removeprefix("nvidia").isdecimal() for node in (root / "dev").glob("nvidia*"))


def _hex(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return None


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
