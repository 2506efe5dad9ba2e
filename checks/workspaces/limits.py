"""From where on memory allocation is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step: below, raising thresholds is not worth the memory it keeps."""
    churn_share: float = 0.18
    """Of the step, that page faults may take at most: 1.10x in the middle of what is told. Of three programs below none
    gained with freed memory kept (0.90x to 1.02x), of four above three did (1.09x to 1.38x, and 0.91x)."""
    error_share: float = 0.20
    """A judgement; the step that gained 1.77x had 43 %."""
    max_retries_per_step: float = 0.01
    """Allocations that failed and flushed the CUDA cache; zero in steady state."""
    max_fragmentation: float = 0.3
    """Share of the reserved memory unused at the peak, from which on retries are blamed on its cutting up."""
