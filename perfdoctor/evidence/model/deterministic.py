"""Deterministic algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.timings import DeterministicTiming


@dataclass(frozen=True, slots=True)
class Deterministic:
    """Torch uses deterministic algorithms only."""

    site: Site | None
    """The line that says so."""
    timing: DeterministicTiming | Missing
