"""One axis of speed-ups for a whole page: every predicted and measured interval can be compared with every other.

It is logarithmic, because speed-ups multiply: 0.5x is as far from 1x as 2x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .. import wording

_UPWARDS = (1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
_DOWNWARDS = (0.9, 0.8, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_ENDS = (0.01, 100.0)
"""What lies beyond is drawn at the end."""
_SMALLEST = 1.25
"""The axis reaches at least so far, or a gain of 1.01x would look large."""
_APART = 11.0
"""Per cent of the width that two labels need on a phone."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of speed-ups, as it is told."""

    kind: Literal["predicted", "measured"]
    low: float
    high: float
    text: str
    point: float | None = None
    """The measured one."""

    @property
    def is_open(self) -> bool:
        """Whether only its lower end is told."""
        return self.kind == "predicted" and self.low > 1 and wording.is_wide(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Mark:
    """An interval on the axis, in per cent of its width."""

    interval: Interval
    start: float
    width: float
    point: float | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on the axis."""

    label: str
    place: float
    is_one: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """From one speed-up to another."""

    low: float
    high: float

    def place(self, factor: float) -> float:
        """Per cent from the left."""
        inside = min(self.high, max(self.low, factor))
        return round(100 * math.log(inside / self.low) / math.log(self.high / self.low), 2)

    def mark(self, interval: Interval) -> Mark:
        """Where the interval lies."""
        start, end = self.place(interval.low), self.place(interval.high)
        return Mark(
            interval, start, round(end - start, 2), None if interval.point is None else self.place(interval.point)
        )

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """1x, and outwards from it as many as there is room for."""
        factors = [1.0]
        for outwards in (_UPWARDS, _DOWNWARDS):
            last = self.place(1)
            for factor in outwards:
                place = self.place(factor)
                if self.low <= factor <= self.high and abs(place - last) >= _APART:
                    factors.append(factor)
                    last = place
        return tuple(Tick(f"{wording.count(factor)}x", self.place(factor), factor == 1) for factor in sorted(factors))


def axis(intervals: Iterable[Interval]) -> Axis:
    """One that holds them all, and 1x, with a margin for half a label."""
    ends = [end for interval in intervals for end in (interval.low, interval.high)]
    low = max(_ENDS[0], min([1.0, *ends]))
    high = min(_ENDS[1], max([_SMALLEST, *ends]))
    margin = (high / low) ** 0.06
    return Axis(low / margin, high * margin)
