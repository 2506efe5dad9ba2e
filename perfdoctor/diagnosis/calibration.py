"""Ranges that hold what they promise: what a check predicts, widened by how far predictions missed before.

Conformal prediction, in the manner of conformalized quantile regression (Romano et al., NeurIPS 2019; each end by
itself, as in their section 4.1), on logarithms of speed-ups. How far a true gain lay below the range of its prediction,
and above it, in half widths of that range, are its misses. Either end of a new range is moved out by the miss that 95 %
of earlier ones did not exceed: of the same check where it has enough of them, else of all. `calibration.json` has the
misses; `benchmarks/calibrate.py` measures them anew.
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
"""Of true gains, within the range that is told: those that are not lie beyond either end as often."""
_NARROWEST = 0.05
"""Half width of a range, in logarithms of speed-ups: below, launches of one program differ by more."""
_ENOUGH = 40
"""Misses from which on 5 % beyond either end are two, and not the single worst prediction ever made; one check with so
many is judged by its own."""
_MOST = 0.98
"""Of the step, saved at most: a fiftyfold speed-up."""
MISSES = Path(__file__).with_name("calibration.json")


Ends = tuple[float, float]
"""Below the lower end of a range and above its higher one, in its half widths; negative inside."""


def miss(low: float, high: float, true: float) -> Ends:
    """How far the true speed-up lies outside a range of speed-ups."""
    half = max((math.log(high) - math.log(low)) / 2, _NARROWEST)
    return (math.log(low) - math.log(true)) / half, (math.log(true) - math.log(high)) / half


def widening(misses: Mapping[str, Sequence[Ends]], code: str) -> Ends:
    """By how many half widths the ranges of a check are widened at each end; not at all while too few are known."""
    own = misses.get(code, ())
    some = own if len(own) >= _ENOUGH else [one for many in misses.values() for one in many]
    if len(some) < _ENOUGH:
        return 0.0, 0.0
    rank = min(len(some), math.ceil((1 + COVERAGE) / 2 * (len(some) + 1)))
    below, above = (max(0.0, sorted(end)[rank - 1]) for end in zip(*some, strict=True))
    return below, above


def calibrated(savings: Savings, code: str, step_ms: float) -> Savings:
    """The savings with their range widened; as they are where nothing is predicted."""
    below, above = widening(_known(), code)
    if not below + above or step_ms <= 0 or savings.high_ms <= 0:
        return savings
    low, high = (-math.log1p(-min(ms / step_ms, _MOST)) for ms in (savings.low_ms, savings.high_ms))
    half = max((high - low) / 2, _NARROWEST)
    ends = low - below * half, high + above * half
    low_ms, high_ms = (step_ms * min(_MOST, -math.expm1(-max(0.0, end))) for end in ends)
    return replace(
        savings,
        low_ms=low_ms,
        high_ms=max(high_ms, savings.high_ms),
        ceiling_ms=max(high_ms, savings.ceiling_ms),
        predicted_ms=(savings.low_ms, savings.high_ms),
    )


@functools.cache
def _known() -> Mapping[str, Sequence[Ends]]:
    misses: Mapping[str, Sequence[Ends]] = json.loads(MISSES.read_text())["misses"]
    return misses
