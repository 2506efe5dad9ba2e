"""From where on a device or a library is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step that a library or a device costs: below, changing an installation is not worth it."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a new installation."""
    min_flops: float = 1e9
    """Floating-point operations of a step below which a GPU may be the slower device: at 10 us a kernel launch, a
    step of some hundred operators takes milliseconds there, and 1e9 operations take 10 ms on one CPU core."""
    min_gflops_per_thread: float = 8.0
    """Products that run slower have no kernel for this CPU: AVX2 cores reach 50 and more, NEON 20, the reference
    BLAS 1 to 3."""
