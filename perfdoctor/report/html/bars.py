"""A time in its parts as one stacked bar: what each segment looks like and how wide it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..anatomy import SliceText


@dataclass(frozen=True, slots=True)
class Segment:
    """One part."""

    row: SliceText
    hue: str
    """One of the palette's, that of the terminal."""
    texture: int
    """0 for the first part of its hue, 1 for the next: told apart without a second colour."""
    width: float
    """Per cent of the bar."""


def segments(rows: tuple[SliceText, ...]) -> tuple[Segment, ...]:
    """In the order of the parts."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        style = row.piece.look.style
        found.append(Segment(row, style, seen[style], round(100 * row.piece.share, 3)))
        seen[style] += 1
    return tuple(found)
