"""From where on memory allocation is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step: below, raising thresholds is not worth the memory it keeps."""
    error_share: float = 0.20
    """A judgement; the step that gained 1.77x had 43 %."""
    max_retries_per_step: float = 0.01
    """Allocations that failed and flushed the CUDA cache; zero in steady state."""
    max_fragmentation: float = 0.3
    """Share of the reserved memory unused at the peak, from which on retries are blamed on its cutting up."""
