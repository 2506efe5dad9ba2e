"""The few statistics the evidence needs, on numpy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

TRIM = 0.05
"""Cut from each end by `trimmed_mean`: one hiccup in 20 steps does not move it."""
_BLOCKS = 20
_RESAMPLES = 1000
_PERIODS = 8
_T_99 = (63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50)
"""Student's t, two-sided, for 1 to 7 degrees of freedom."""


def trimmed_mean(values: Array) -> float:
    """5 % trimmed mean; 0 for no values. (Importing scipy.stats for it would take 0.7 s.)"""
    cut = int(values.size * TRIM)
    return float(np.sort(values)[cut : values.size - cut].mean()) if values.size else 0.0


def mad(values: Array) -> float:
    """Median absolute deviation, not scaled."""
    return float(np.median(np.abs(values - np.median(values)))) if values.size else 0.0


def block_interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Bootstrap interval of the mean, resampling blocks.

    Neighbouring steps resemble each other (a neighbour's burst, a GC cycle), so single steps may not be
    resampled; up to 20 consecutive blocks stand for them.
    """
    if values.size < 4:
        return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    means = np.array([block.mean() for block in np.array_split(values, min(_BLOCKS, values.size // 2))])
    draws = np.random.default_rng(0).choice(means, size=(_RESAMPLES, means.size)).mean(axis=1)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)


def lasting_low(values: Array) -> float:
    """Lower end of the mean's 99 % interval, from the means of eighths: what comes and goes over a tenth of the run, as
    a neighbour does, counts for one or two of eight, where `block_interval` would take it for many steps."""
    if values.size < 4:
        return float(values.min()) if values.size else 0.0
    means = np.array([part.mean() for part in np.array_split(values, min(_PERIODS, values.size // 2))])
    beside = _T_99[means.size - 2] * means.std(ddof=1) / np.sqrt(means.size)
    return float(means.mean() - beside)
