"""What this machine lets the job use, read once per run and kept as machine.json."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import platform
import re
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from ..injected._perfdoctor_probe import records
from ..recording.machine import Machine
from .cgroup import Cgroups
from .devices import count_device_nodes, read_cpu, read_cpu_model, read_pci_gpus
from .gpu import NvmlGpus
from .processes import read_or_none

FAULT_ROUNDS = 3
FAULT_CHUNKS = 32
FAULT_CHUNK_BYTES = 1 << 20
"""A round maps 32 MiB: 8192 faults take 2 to 15 ms. The median ignores the chunks that were preempted."""


NO_CONTAINER = "none"
UNKNOWN_IMAGE = "a container that does not say its image"
_MARKS = ("run/.containerenv", ".dockerenv")


def read_machine(root: Path = Path("/"), gpus: NvmlGpus | None = None) -> Machine:
    """Reads it and measures a page fault (10 to 50 ms). `root` is where /proc and /sys are looked for.

    Raises nothing: what cannot be read is None, 0 or "unknown".
    """
    groups = Cgroups(root)
    installed = psutil.virtual_memory().total
    limit = groups.memory_limit_bytes()
    nvml = gpus if gpus is not None else NvmlGpus()
    cards = nvml.cards()
    cuda_driver = nvml.cuda_driver()
    if gpus is None:
        nvml.close()
    return Machine(
        cpu_model=read_cpu_model(root),
        logical_cpus=os.cpu_count() or 1,
        physical_cores=psutil.cpu_count(logical=False),
        affinity_cpus=len(os.sched_getaffinity(0)),
        quota_cpus=groups.quota_cpus(),
        memory_bytes=installed if limit is None else min(installed, limit),
        swap_bytes=psutil.swap_memory().total,
        kernel=platform.release(),
        libc=_libc(),
        page_fault_ns=measure_page_fault_ns(),
        gpus=cards,
        gpus_absent=nvml.absent,
        cuda_driver=cuda_driver,
        pci_gpus=read_pci_gpus(root),
        gpu_nodes=count_device_nodes(root),
        cpu=read_cpu(root),
        container=container_image(root),
    )


def write_machine(machine: Machine, path: Path) -> None:
    """Writes machine.json. Raises OSError."""
    path.touch(mode=0o600)
    record = {"version": records.VERSION, **dataclasses.asdict(machine)}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure_page_fault_ns() -> float | None:
    """First touch of a small page of private anonymous memory: the fault and its zeroing, nanoseconds.

    Each chunk is touched twice and the second pass is subtracted, so that what remains is the fault. Of
    several rounds the cheapest counts: in a virtual machine the first touch of memory that no guest process
    ever used also makes the hypervisor fault, which allocator churn in a running job does not. None where no
    memory can be mapped.
    """
    rounds = [fault_ns for _ in range(FAULT_ROUNDS) if (fault_ns := _fault_round_ns()) is not None]
    return min(rounds, default=None)


def _fault_round_ns() -> float | None:
    """The median chunk's cost of a page, in newly mapped memory."""
    try:
        # Private on purpose: the default is shared, whose faults go through shmem and cost more.
        area = mmap.mmap(-1, FAULT_CHUNKS * FAULT_CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError):
        return None
    with area:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                area.madvise(mmap.MADV_NOHUGEPAGE)
        pages = FAULT_CHUNK_BYTES // mmap.PAGESIZE
        starts = range(0, FAULT_CHUNKS * FAULT_CHUNK_BYTES, FAULT_CHUNK_BYTES)
        return max(0.0, statistics.median(_chunk_ns(area, start) for start in starts) / pages)


def _chunk_ns(area: mmap.mmap, start: int) -> int:
    """Time of the first pass over the chunk's pages beyond the second."""
    every_page = slice(start, start + FAULT_CHUNK_BYTES, mmap.PAGESIZE)
    # An extended slice is assigned in one loop in C: no interpreter time per page.
    ones = b"\1" * (FAULT_CHUNK_BYTES // mmap.PAGESIZE)
    marks = []
    for _ in range(2):
        begin = time.perf_counter_ns()
        area[every_page] = ones
        marks.append(time.perf_counter_ns() - begin)
    return marks[0] - marks[1]


def container_image(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> str:
    """The image of the container that this runs in, as far as a process inside can know.

    Podman writes the image's id into the container, GitLab its name into a variable; Docker tells nobody inside.
    `none` outside of a container.
    """
    found = re.search(r'^imageid="(\w+)"', read_or_none(root / "run/.containerenv") or "", re.MULTILINE)
    if found:
        return found[1][:12]
    if environment.get("CI_JOB_IMAGE"):
        return environment["CI_JOB_IMAGE"]
    inside = any((root / mark).exists() for mark in _MARKS) or "KUBERNETES_SERVICE_HOST" in environment
    return UNKNOWN_IMAGE if inside else NO_CONTAINER


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "unknown"  # musl
