"""A process: where it comes from, its counters, and what happened in it now and then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProcessHeader:
    """The first record of a file."""

    pid: int
    ppid: int
    t: int
    forked: bool = False
    spawned: bool = False
    python: str = ""
    executable: str = ""
    module: str = ""
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class TorchImport:
    """Torch was imported, or could not be."""

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cpus: int = 0
    script: str = ""
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class FullCollection:
    """One generation-2 collection, or any that somebody asked for (`site` >= 0)."""

    step: int
    us: int
    generation: int = 2
    collected: int = 0
    site: int = -1


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections since the last such record, by generation."""

    step: int
    counts: tuple[int, ...]
    us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of a wrapped function since the last such record."""

    kind: str
    site: int
    count: int
    us: int
    step: int


@dataclass(frozen=True, slots=True)
class EvalWithGradSeen:
    """Forwards in evaluation mode whose graph nobody used."""

    step: int
    site: int
    count: int
    us: int


@dataclass(frozen=True, slots=True)
class CudaCounters:
    """Statistics of torch's CUDA allocator; totals since the start."""

    num_alloc_retries: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0
    num_ooms: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    inactive_split: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of a process, totals since its start."""

    t: int
    step: int
    utime_us: int = 0
    stime_us: int = 0
    minflt: int = 0
    majflt: int = 0
    nvcsw: int = 0
    nivcsw: int = 0
    maxrss_kb: int = 0
    thread_us: int = 0
    delay_us: int | None = None
    rchar: int = 0
    read_bytes: int = 0
    events: int = 0
    own_us: int = 0
    window_us: int = 0
    cuda: CudaCounters | None = None


@dataclass(frozen=True, slots=True)
class CodeSite:
    """A place in the user's code."""

    id: int
    file: str
    line: int
    function: str = ""
    via: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A hook that raised."""

    hook: str
    error: str
