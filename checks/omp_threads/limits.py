"""From where on another number of threads is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.10
    """Share of the step that another number of threads would save, from timed operators: their noise is 5 %."""
    error_share: float = 0.25
    """A judgement: far above what the choice between two sane numbers of threads is worth."""
    run_delay: float = SIGNS.delay_share
    """Share of its runnable time that the job waits for a CPU, from which on CPUs are contended."""
    throttled: float = SIGNS.throttled
    """Share of quota periods in which the job was throttled."""
