"""Ranges that hold what they promise: what a check predicts, widened by how far predictions missed before.

Conformal prediction, in the manner of conformalized quantile regression (Romano et al., NeurIPS 2019; each end by
itself, as in their section 4.1). A prediction misses in proportion to what it predicts: a gain is twice as large as was
said, or half. So a miss is the true speed-up's logarithm over that of either end of the range, and a new range's ends
are raised to the powers that 95 % of earlier truths did not fall below, and did not exceed: of the same check where it
has enough of them, else of all.

Those truths are of programs that the checks were changed by. Ranges told so about programs that were new held 23 of 39
truths, so both ends are moved once more, by the power that held all but those that were wrong in kind.
`calibration.json` has the misses and that power; `benchmarks/calibrate.py` measures them anew.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .findings import Savings

COVERAGE = 0.9
"""Of true gains, within the range that is told: those that are not lie beyond either end as often."""
_ENOUGH = 19
"""Misses from which on one of them bounds 5 %, the largest; one check with so many is judged by its own."""
_MOST = 0.98
"""Of the step, saved at most: a fiftyfold speed-up."""
MISSES = Path(__file__).with_name("calibration.json")


Ends = tuple[float, float]
"""Powers to which the lower end of a range of speed-ups, and its higher one, would be the true speed-up."""


@dataclass(frozen=True, slots=True)
class Known:
    """How predictions missed."""

    misses: Mapping[str, Sequence[Ends]] = field(default_factory=dict)
    """By the code of the check, of programs that it was changed by."""
    unseen: float = 1.0
    """The power by which ranges so widened are to be widened for programs that are new; at least 1."""


def miss(low: float, high: float, true: float) -> Ends:
    """How far the true speed-up lies from the ends of a range of speed-ups: at least 1 and at most 1 inside."""
    return _power(low, true), _power(high, true)


def _power(end: float, true: float) -> float:
    """An end at 1.0x stays there whatever its power."""
    return math.log(true) / math.log(end) if end > 1 else float(true >= end)


def widening(misses: Mapping[str, Sequence[Ends]], code: str) -> Ends:
    """The powers to which the ends of a check's ranges are raised; 1 while too few misses are known."""
    own = misses.get(code, ())
    some = own if len(own) >= _ENOUGH else [one for many in misses.values() for one in many]
    if len(some) < _ENOUGH:
        return 1.0, 1.0
    rank = min(len(some), math.ceil((1 + COVERAGE) / 2 * (len(some) + 1)))
    lows, highs = (sorted(end) for end in zip(*some, strict=True))
    return min(1.0, max(0.0, lows[-rank])), max(1.0, highs[rank - 1])


def calibrated(savings: Savings, code: str, step_ms: float) -> Savings:
    """The savings with their range widened; as they are where nothing is predicted."""
    if savings.counted:
        return savings
    known = _known()
    below, above = widening(known.misses, code)
    below, above = below / known.unseen, above * known.unseen
    if (below, above) == (1.0, 1.0) or step_ms <= 0 or savings.high_ms <= 0:
        return savings
    low_ms, high_ms = (
        step_ms * min(_MOST, 1 - (1 - min(ms / step_ms, _MOST)) ** power)
        for ms, power in ((savings.low_ms, below), (savings.high_ms, above))
    )
    return replace(
        savings,
        low_ms=low_ms,
        high_ms=max(high_ms, savings.high_ms),
        ceiling_ms=max(high_ms, savings.ceiling_ms),
        predicted_ms=(savings.low_ms, savings.high_ms),
    )


@functools.cache
def _known() -> Known:
    return Known(**json.loads(MISSES.read_text()))
