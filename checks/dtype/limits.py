"""From where on a data type is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """A conversion touches every file of a project; less is not worth that."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a change of type even where it must be tested."""
    scaler_min_share: float = 0.01
    """A gradient scaler that does nothing is one line to remove."""
