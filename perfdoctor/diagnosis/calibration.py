"""Ranges that hold what they promise: what a check predicts, widened by how far predictions missed before.

Conformal prediction, in the manner of conformalized quantile regression (Romano et al., NeurIPS 2019), on logarithms
of speed-ups. How far a true gain lay outside the range of its prediction, in half widths of that range, is its miss.
The range of a new prediction is widened by the miss that nine tenths of earlier ones did not exceed: of the same check
where it has enough of them, else of all. `calibration.json` has the misses; `benchmarks/calibrate.py` measures them
anew.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .findings import Savings

COVERAGE = 0.9
"""Of true gains, within the range that is told."""
_NARROWEST = 0.05
"""Half width of a range, in logarithms of speed-ups: below, launches of one program differ by more."""
_ENOUGH = 20
"""Misses from which on a tenth of them is more than one or two; one check with so many is judged by its own."""
_MOST = 0.98
"""Of the step, saved at most: a fiftyfold speed-up."""
MISSES = Path(__file__).with_name("calibration.json")


def miss(low: float, high: float, true: float) -> float:
    """How far the true speed-up lies outside a range of speed-ups, in its half widths; negative inside."""
    half = max((math.log(high) - math.log(low)) / 2, _NARROWEST)
    return max(math.log(low) - math.log(true), math.log(true) - math.log(high)) / half


def widening(misses: Mapping[str, Sequence[float]], code: str) -> float:
    """By how many half widths the ranges of a check are widened, at either end; not at all while too few are known."""
    own = misses.get(code, ())
    some = sorted(own if len(own) >= _ENOUGH else [one for many in misses.values() for one in many])
    rank = math.ceil(COVERAGE * (len(some) + 1))
    return max(0.0, some[rank - 1]) if len(some) >= _ENOUGH else 0.0


def calibrated(savings: Savings, code: str, step_ms: float) -> Savings:
    """The savings with their range widened; as they are where nothing is predicted."""
    times = widening(_known(), code)
    if not times or step_ms <= 0 or savings.high_ms <= 0:
        return savings
    low, high = (-math.log1p(-min(ms / step_ms, _MOST)) for ms in (savings.low_ms, savings.high_ms))
    more = times * max((high - low) / 2, _NARROWEST)
    low_ms, high_ms = (step_ms * min(_MOST, -math.expm1(-max(0.0, end))) for end in (low - more, high + more))
    return replace(
        savings,
        low_ms=low_ms,
        high_ms=max(high_ms, savings.high_ms),
        ceiling_ms=max(high_ms, savings.ceiling_ms),
        predicted_ms=(savings.low_ms, savings.high_ms),
    )


@functools.cache
def _known() -> Mapping[str, Sequence[float]]:
    misses: Mapping[str, Sequence[float]] = json.loads(MISSES.read_text())["misses"]
    return misses
