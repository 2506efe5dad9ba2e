"""Which of several ranks come last, by what each waits for the others: always the same ones, or in turns.

Everything here is milliseconds, one row per rank, one column per step that is steady on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .model import Turns
from .stats import block_interval, lasting_low

Floats = npt.NDArray[np.float64]
_TWICE = 2.0
"""Times what the middle one of all ranks takes, in the same step and in most others, from which on a rank straggles:
work that varies by a third from step to step does so in one step of a hundred."""
_TAKES_PART = 0.25
"""Of an equal share in what the stragglers cost, from which on a rank is one of them."""


@dataclass(frozen=True, slots=True)
class Last:
    """Ranks that come later than all others."""

    rows: tuple[int, ...]
    """The last one first."""
    lead: Floats
    """By how much the last of them comes later than the first of the others, step by step; negative where it is
    earlier."""

    @property
    def low_ms(self) -> float:
        """They are chosen by the same steps, and whom a neighbour disturbs for seconds is chance."""
        return min(block_interval(self.lead)[0], lasting_low(self.lead))


def latest(waits: Floats, rows: Sequence[int]) -> Last:
    """Of at least two ranks at most half, up to where the next one waits longest beyond them: two ranks that are late
    together wait for nobody either, and one alone would be late by nothing."""
    order = sorted(rows, key=lambda row: float(waits[row].mean()))
    means = waits[order].mean(axis=1)
    count = 1 + int(np.diff(means)[: len(order) // 2].argmax())
    late, others = order[:count], order[count:]
    return Last(tuple(late), waits[others].min(axis=0) - waits[late].min(axis=0))


def turns(own: Floats, parts: Mapping[str, Floats], ranks: Sequence[int]) -> Turns | None:
    """What single steps cost in which a rank takes twice the usual time and others do not: no median shows them, nor
    does any rank's mean where each has its turn. None where that never happens."""
    middle = np.sort(own, axis=0)[(len(own) - 1) // 2]
    ordinary = np.maximum(np.median(middle), middle)
    straggling = own > _TWICE * ordinary
    last = own.argmax(axis=0)
    lost = own.max(axis=0) - np.where(straggling, ordinary, own).max(axis=0)
    if not lost.any():
        return None
    by_rank = np.array([lost[last == row].sum() for row in range(len(own))])
    taking = [int(row) for row in by_rank.argsort()[::-1] if by_rank[row] >= _TAKES_PART * by_rank.sum() / len(own)]
    columns = np.flatnonzero(lost)
    beyond = {
        name: float((values - np.median(values))[last[columns], columns].sum() / own.shape[1])
        for name, values in parts.items()
    }
    part = max(beyond, key=lambda name: beyond[name])
    return Turns(
        ranks=tuple(ranks[row] for row in taking),
        ms=float(lost.mean()),
        low_ms=max(0.0, min(block_interval(lost)[0], lasting_low(lost))),
        share=float((lost > 0).mean()),
        part=part,
        part_ms=beyond[part],
    )
