"""timings.json: what variables that cap the instruction set cost, timed after the job."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing

NO_CAP = Missing("no variable caps the instruction set")


@dataclass(frozen=True, slots=True)
class CapTiming:
    """One of the job's own operators, timed after the job with the capping variables and without."""

    name: str
    shapes: str
    dtype: str
    calls_per_step: float
    capped_milliseconds: float
    free_milliseconds: float
    """One call."""


@dataclass(frozen=True, slots=True)
class CapTimings:
    """What variables that cap the instruction set cost on this machine."""

    variables: tuple[tuple[str, str], ...]
    timings: tuple[CapTiming, ...]
    rounds: int
    """The two interpreters took turns so often; timings are medians."""
    free_capability: str
    """What torch's own kernels use without the variables."""
