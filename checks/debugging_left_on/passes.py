"""The model's own passes, run again after the last step with an aid and without."""

from __future__ import annotations


def slower(now_ms: float, otherwise_ms: float) -> float:
    """The share of the passes' time that the aid takes; 0 where they were not timed."""
    return max(0.0, 1 - otherwise_ms / now_ms) if now_ms > 0 else 0.0
