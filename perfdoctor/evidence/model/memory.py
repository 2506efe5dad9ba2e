"""Memory of the training process and of the device."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.lines import CallSite


@dataclass(frozen=True, slots=True)
class EvalWithGrad:
    """Forwards in evaluation mode that recorded a graph nobody used."""

    site: Site | Missing
    forwards: int
    forward_ms: float
    """Time in those forwards per step of training, or per forward in an inference loop."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The training process and the C allocator, per steady step."""

    minor_faults: float
    """Without those of pages that stay: by which the process reached a new peak."""
    system_cpu_ms: float
    user_cpu_ms: float
    peak_rss_bytes: int | Missing
    allocator: str
    """`glibc`, `jemalloc`, `tcmalloc`, `mimalloc`."""
    malloc_settings: tuple[tuple[str, str], ...]
    """Allocator variables that are set."""
    eval_with_grad: EvalWithGrad | None
    empty_cache: tuple[CallSite, ...]

    @property
    def system_share(self) -> float:
        total = self.system_cpu_ms + self.user_cpu_ms
        return self.system_cpu_ms / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """The CUDA caching allocator over the steady steps."""

    backend: str
    caching: bool
    alloc_retries_per_step: float
    device_allocs_per_step: float
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    total_bytes: int

    @property
    def fragmentation(self) -> float:
        return 1 - self.peak_allocated_bytes / self.peak_reserved_bytes if self.peak_reserved_bytes else 0.0
