"""From where on debugging that was left on is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """One line to take out, so little is worth it."""
    error_share: float = 0.30
    """A judgement: a third of the step spent on debugging."""
