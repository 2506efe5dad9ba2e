"""The same work with an aid and without: the model's own passes, run again after the last step, or steps of the job."""

from __future__ import annotations


def slower(now_ms: float, otherwise_ms: float) -> float:
    """The share of the time that the aid takes; 0 where it was not timed."""
    return max(0.0, 1 - otherwise_ms / now_ms) if now_ms > 0 else 0.0
