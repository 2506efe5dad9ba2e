"""How a series of times changes: Theil's and Sen's slope through medians of blocks of neighbours, and its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .stats import trimmed_mean

Array = npt.NDArray[np.float64]

LEAST = 30
"""Values in a series that has a course."""
_BLOCKS = (6, 24)
"""At least and at most. Fewer than six have no 99 % interval; more say nothing more."""
_PER_BLOCK = 5
_Z = 2.58
"""99 % of a normal distribution, which Kendall's tau has from a handful of values on."""
_GRADUAL = 0.25
"""Of the common rate, that either half must have: a neighbour that comes makes one jump."""
_GROWN = 0.1
"""Of its early value, from which on something grows at all."""


@dataclass(frozen=True, slots=True)
class Course:
    """From the first value to the last."""

    early: float
    """Of the first blocks."""
    late: float
    """Of the last value, by the slope: the last blocks may have met a neighbour."""
    low: float
    """Growth as a share of `early`: the ends of its 99 % interval (Sen's, from Kendall's tau)."""
    high: float
    is_gradual: bool
    """Both halves grow, each at a quarter of the common rate or more: not one jump."""


def course(at: Array, values: Array) -> Course:
    """Of at least `LEAST` values, each `at` its number of steps or batches."""
    blocks = int(np.clip(values.size // _PER_BLOCK, *_BLOCKS))
    x, y = _medians(at, blocks), _medians(values, blocks)
    slopes = _slopes(x, y)
    beside = _Z * np.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18)
    low, high = (int(np.clip((slopes.size + side * beside) / 2, 0, slopes.size - 1)) for side in (-1, 1))
    common = float(np.median(slopes))
    early, span = float(np.median(y[:2])), float(at[-1] - at[0])
    return Course(
        early=early,
        late=early + common * span,
        low=float(slopes[low]) * span / early if early > 0 else 0.0,
        high=float(slopes[high]) * span / early if early > 0 else 0.0,
        is_gradual=_is_gradual(x, y),
    )


def gain(values: Array) -> float:
    """From the first value to the last, by the means of the first and the last quarter, whose middles are three
    quarters of that apart."""
    quarter = values.size // 4
    return (trimmed_mean(values[-quarter:]) - trimmed_mean(values[:quarter])) * 4 / 3


def _medians(values: Array, blocks: int) -> Array:
    return np.array([float(np.median(block)) for block in np.array_split(values, blocks)])


def _is_gradual(x: Array, y: Array) -> bool:
    """Whether both halves of what grows do."""
    grown, half = float(np.median(_slopes(x, y))) * (x[-1] - x[0]), x.size // 2
    halves = [float(np.median(_slopes(x[part], y[part]))) for part in (slice(half), slice(-half, None))]
    least = _GRADUAL * grown / (x[-1] - x[0])
    return bool(grown > _GROWN * float(np.median(y[:2])) and all(one >= least for one in halves))


def _slopes(x: Array, y: Array) -> Array:
    """Between all pairs of points, in order."""
    one, other = np.triu_indices(x.size, 1)
    return np.sort((y[other] - y[one]) / (x[other] - x[one]))
