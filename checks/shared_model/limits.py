"""From where on threads that call one model are worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.10
    """Share of the step that a fix may save, at most: predictions are wide, and less is not worth a redesign."""
    error_share: float = 0.40
    """A judgement: threads then hardly help, or harm."""
    overlapped: float = 0.20
    """Share of forwards that overlap: with fewer, threads seldom meet."""
    blocked: float = 0.20
    """Share of an overlapping forward spent waiting for a lock; kernels of a millisecond leave 2 to 10 %."""
    useful: float = 1.25
    """Threads' worth of work, up to which several threads are worth no more than one; the measure errs by 10 %."""
    saturated: float = 1.5
    """Forwards under way on average, also while there are none: below it, threads are idle because nobody asks."""
    small_operators: float = 0.5
    """What a second request adds to the operators' time, below which most of it is overhead; large kernels double."""
    team_blocked_op_ms: float = 0.3
    """With several intra-op threads a wait may be for their team. Operators shorter than this are too short for it."""
    team_gain: float = 0.20
    """What one intra-op thread must save of the operators' time: beside other threads timing is noisy."""
    occupied: float = 0.70
    """Share of the time in which a thread is inside the model though no two are: a lock's doing."""
    waiters: float = 0.5
    """Threads that stand before the model per measured forward."""
