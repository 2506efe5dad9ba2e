"""From where on another library, or another way to use it, is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """What a fix must be predicted to save, in the middle of its range; below, one line of code is not worth it."""
    error_share: float = 0.25
    """A judgement: a quarter of the step for a line of code."""
    convolution_share: float = 0.50
    """Share of the step in convolutions from which on trying cuDNN's algorithms is advised."""
