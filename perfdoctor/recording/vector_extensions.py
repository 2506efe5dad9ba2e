"""timings.json: what variables that limit vector extensions cost, timed after the job."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing

NO_LIMIT = Missing("no variable limits vector extensions")


@dataclass(frozen=True, slots=True)
class VectorExtensionTiming:
    """One of the job's own operators, timed after the job with the limiting variables and without."""

    name: str
    shapes: str
    dtype: str
    calls_per_step: float
    limited_milliseconds: float
    full_milliseconds: float
    """One call."""


@dataclass(frozen=True, slots=True)
class VectorExtensionTimings:
    """What variables that limit vector extensions cost on this machine."""

    variables: tuple[tuple[str, str], ...]
    timings: tuple[VectorExtensionTiming, ...]
    rounds: int
    """The two interpreters took turns so often; timings are medians."""
    full_capability: str
    """What torch's own kernels use without the variables."""
