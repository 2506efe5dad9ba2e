"""Modes of the job's own around its steps."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ...recording.base import Missing
from ...recording.modes import Mode


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes that were on when it was last looked for some."""

    share: float
    """Of the steps that were looked at then."""
    timed: tuple[Mode, ...] | Missing
    """In steps with some on, the dearest first."""

    def ms_per_step(self, mode: Mode) -> float:
        """What one takes, over all steps."""
        return self.share * median(mode.ms)
