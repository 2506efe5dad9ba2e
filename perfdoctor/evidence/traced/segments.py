"""A window cut at every border of some sets of intervals, so that unions, intersections and differences are boolean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ...traces.model import Spans

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Set = tuple[Floats, Floats]
"""Starts and ends of intervals, which may overlap."""


def spans(events: Spans) -> Set:
    """The set of all of them."""
    return events.start_us, events.end_us


class Segments:
    """Consecutive segments that make up the window; each lies wholly within each set, or wholly outside."""

    def __init__(self, window: tuple[float, float], sets: Mapping[str, Set]) -> None:
        clipped = {name: (np.clip(a, *window), np.clip(b, *window)) for name, (a, b) in sets.items()}
        self.borders = np.unique(np.concatenate([np.array(window), *(x for pair in clipped.values() for x in pair)]))
        self.lengths = np.diff(self.borders)
        self._inside = {name: self._covered(*pair) for name, pair in clipped.items()}

    def __getitem__(self, name: str) -> Mask:
        """Segments within a set."""
        return self._inside[name]

    def ms(self, mask: Mask) -> float:
        """How long some of the segments are together."""
        return float(self.lengths[mask].sum()) / 1000

    def runs(self, mask: Mask) -> Set:
        """Neighbouring segments of a mask as one interval each."""
        padded = np.concatenate([[False], mask, [False]])
        turns = np.flatnonzero(np.diff(padded.astype(np.int8)))
        return self.borders[turns[::2]], self.borders[turns[1::2]]

    def beginning_in(self, intervals: Set) -> Mask:
        """Segments that begin within other intervals, by which the window was not cut."""
        other = Segments((self.borders[0], self.borders[-1]), {"": intervals})
        return np.asarray(other[""][np.searchsorted(other.borders, self.borders[:-1], side="right") - 1])

    def _covered(self, starts: Floats, ends: Floats) -> Mask:
        depth = np.zeros(len(self.borders), dtype=np.int64)
        np.add.at(depth, np.searchsorted(self.borders, starts), 1)
        np.add.at(depth, np.searchsorted(self.borders, ends), -1)
        return np.asarray(np.cumsum(depth)[:-1] > 0)
