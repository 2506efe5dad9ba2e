"""What a few steps do, counted: the same in every launch of a job that does the same work."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing

NO_COUNTERS = Missing(
    "this run was not asked to count", "record it with `perfdoctor gate` or `perfdoctor baseline write`"
)


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters window, per step."""

    first_step: int
    """The step that it began at: two launches are comparable when they counted the same steps."""
    steps: int
    aten_ops: float
    """All ATen operators, those that others call included."""
    calls: tuple[tuple[str, float], ...]
    """Operators that no other operator called, by name."""
    syncs: float
    """Reads of a scalar: `.item()`, `if tensor:`, and what optimizers do."""
    conversions: float
    """Copies to another type or device."""
    copies: float
    flops: float
    allocations: float | Missing
    allocated_bytes: float | Missing
    kernels: float | Missing
    host_to_device: float | Missing
    device_to_host: float | Missing
    losses: tuple[float, ...]
    """What the backward passes started from, in order."""
    graphs: int | Missing
    """Graphs that torch.compile made until the window closed."""
    graph_breaks: int | Missing
