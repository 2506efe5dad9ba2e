"""What a chart is: words for everybody, and data for the script that draws it."""

from __future__ import annotations

from dataclasses import dataclass

from ...jsonform import Json


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of a page: a caption and a folded table say in words what the script draws from the data."""

    title: str
    caption: str
    """The numbers that matter, in a sentence or two."""
    head: tuple[str, ...]
    """Of the table."""
    rows: tuple[tuple[str, ...], ...]
    """As many cells as the head has; the first one names the row."""
    data: Json
    """`data.charts[name]` for the script: plain lists, rounded."""
