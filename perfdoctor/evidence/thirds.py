"""What changes along with the steps, told from what jumps or comes and goes: means of thirds."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST = 6
"""Readings: two for each third of the steps."""
_MIDDLE = 0.1
"""Of the way from the first third to the last, that the middle one has gone at least, and gone no further than to the
end: what jumps, or comes and goes, is somebody else's."""


def thirds(readings: Iterable[float]) -> tuple[float, float] | None:
    """Means of the first and the last third; None where the middle one does not lie on the way."""
    values = list(readings)
    third = len(values) // 3
    if len(values) < _LEAST:
        return None
    early, middle, late = (sum(part) / len(part) for part in (values[:third], values[third:-third], values[-third:]))
    gone = (middle - early) / (late - early) if late != early else 0.0
    return (early, late) if _MIDDLE <= gone <= 1.0 else None
