"""Steps that get longer, and what grows with them."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.growth import GrowingContainer, GrowingGraph
from .step import Parts


@dataclass(frozen=True, slots=True)
class Trend:
    """How the steady step's length changes, by medians of blocks of steps: a hiccup, or a few, do not move it."""

    steps: int
    """From the first steady one to the last."""
    early_ms: float
    """Of the first blocks."""
    late_ms: float
    """Of the last step, by the trend: the last blocks may have met a neighbour."""
    low: float
    """Growth over those steps as a share of `early_ms`: the ends of its 99 % interval (Sen's, from Kendall's tau)."""
    high: float
    is_gradual: bool
    """Both halves grow, each at a quarter of the common rate or more: not one jump. Beside a busy neighbour the CPU
    time of the training thread may say so where the steps' length does not."""
    parts: Parts
    """What each part of the step gained, milliseconds."""
    cpu_ms: float
    """What the CPU time of the training thread gained."""

    @property
    def grown_ms(self) -> float:
        return self.late_ms - self.early_ms


@dataclass(frozen=True, slots=True)
class GrowingLine:
    """A line of the user's code that was timed in two windows."""

    site: Site
    part: str
    early_ms: float
    """Per step, in ordinary steps around the first window; 0 where it was not seen there."""
    late_ms: float
    share: float
    """Of what the steps around the later window take longer than those around the first."""


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """All that is known about one rank's steps getting longer."""

    trend: Trend | Missing
    containers: tuple[GrowingContainer, ...] = ()
    graphs: tuple[GrowingGraph, ...] = ()
    lines: tuple[GrowingLine, ...] = ()
    """Those that grew, the fastest first; empty where nothing that is kept grew, or no second window opened."""
