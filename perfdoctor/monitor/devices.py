"""Accelerators and the CPU's abilities as the kernel lists them: also where no driver is installed."""

from __future__ import annotations

import platform
from pathlib import Path

from ..recording.machine import Cpu, PciGpu
from .processes import read_or_none

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


def read_cpu_model(root: Path) -> str:
    """x86 says `model name`, ARM boards `Model`, MIPS `cpu model`, POWER `cpu`; ARM servers say nothing."""
    info = _cpuinfo(root)
    names = ("model name", "Model", "cpu model", "cpu")
    return next((info[name] for name in names if name in info), platform.machine() or "unknown")


def read_cpu(root: Path) -> Cpu:
    """Raises nothing: what is not there is empty."""
    info = _cpuinfo(root)
    flags = frozenset(info.get("flags", info.get("Features", "")).split())
    return Cpu(
        flags=tuple(sorted(flags & CPU_FLAGS)),
        hypervisor="hypervisor" in flags,
        vendor=info.get("vendor_id", ""),
        family=_whole(info.get("cpu family", "")),
        model=_whole(info.get("model", "")),
    )


def _cpuinfo(root: Path) -> dict[str, str]:
    """What /proc/cpuinfo says first of each name; nothing where it cannot be read."""
    found: dict[str, str] = {}
    for line in (read_or_none(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if value.strip():
            found.setdefault(name.strip(), value.strip())
    return found


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
        return int(read_or_none(path) or "", 16)
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
