"""Which of several ranks come last, by what each waits for the others: always the same ones, or in turns.

Everything here is milliseconds, one row per rank, one column per step that is steady on all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

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
_MOST = 0.5
"""Of what several ranks are late by: who is late by as much alone is named alone."""
_GAP = 0.25
"""Of what the next rank waits longer than the last one: by so much at least it waits longer than all late ones."""
_ASKED = 100
"""Of the ranks that straggle, how many are asked for what they do then."""
_BLOCK = 500
"""Steps that are looked at together: of thousands of ranks more would take gigabytes."""


@dataclass(frozen=True, slots=True)
class Last:
    """Ranks that come later than all others."""

    rows: tuple[int, ...]
    """The last one first."""
    lead: Floats
    """By how much the last of them comes later than the first of the others, step by step; negative where it is
    earlier."""

    @property
    def ms(self) -> float:
        """Mean over all steps."""
        return float(self.lead.mean())

    @property
    def low_ms(self) -> float:
        """They are chosen by the same steps, and whom a neighbour disturbs for seconds is chance."""
        return min(block_interval(self.lead)[0], lasting_low(self.lead))


def latest(waits: Floats, rows: Sequence[int], sharing: Sequence[Hashable] = ()) -> Last:
    """Of at least two ranks: as few as are late by half as much as any number of them up to half of all. Two ranks that
    are late together, or by turns, wait for nobody else either, and one of them alone would be late by nothing. Behind
    several there must be a gap: of three that take turns no two are the late ones.

    `sharing` has an entry for each row of `waits`, the same for those that share their CPUs: a neighbour there makes
    them late by turns, and for that no gap is asked of the others that share with the last one.
    """
    means = {row: float(waits[row].mean()) for row in rows}
    order = sorted(rows, key=lambda row: means[row])
    counts = {2**power for power in range(len(order).bit_length())} | {3, len(order) // 2}
    found = []
    for count in sorted(counts):
        if 2 * count <= len(order):
            first, last, following = (means[order[place]] for place in (0, count - 1, count))
            if count == 1 or following - last > _GAP * (following - first):
                lead = _least(waits, order[count:]) - _least(waits, order[:count])
                found.append(Last(tuple(order[:count]), lead))
    beside = [row for row in order if sharing and sharing[row] == sharing[order[0]]]
    if 1 < len(beside) <= len(order) // 2:
        apart = [row for row in order if row not in beside]
        found.append(Last(tuple(beside), _least(waits, apart) - _least(waits, beside)))
    most = max(0.0, *[one.ms for one in found])
    return next((one for one in found if one.ms >= _MOST * most), found[0])


def _least(waits: Floats, rows: Sequence[int]) -> Floats:
    """Row by row: of thousands of ranks a copy would take hundreds of megabytes."""
    return reduce(np.minimum, (waits[row] for row in rows))


def turns(own: Floats, ranks: Sequence[int], parts: Callable[[int], Mapping[str, Floats]]) -> Turns | None:
    """What single steps cost in which a rank takes twice the usual time and others do not: no median shows them, nor
    does any rank's mean where each has its turn. None where that never happens.

    `parts`: of the step, by row, where somebody straggles.
    """
    blocks = [own[:, first : first + _BLOCK] for first in range(0, own.shape[1], _BLOCK)]
    half = (len(own) - 1) // 2
    middle = np.concatenate([np.partition(block, half, axis=0)[half] for block in blocks])
    ordinary = np.maximum(np.median(middle), middle)
    last = own.argmax(axis=0)
    lost = np.concatenate(
        [
            block.max(axis=0) - np.where(block > _TWICE * usual, usual, block).max(axis=0)
            for block, usual in zip(blocks, np.split(ordinary, range(_BLOCK, own.shape[1], _BLOCK)), strict=True)
        ]
    )
    if not lost.any():
        return None
    by_rank = np.bincount(last, weights=lost, minlength=len(own))
    taking = [int(row) for row in by_rank.argsort()[::-1] if by_rank[row] >= _TAKES_PART * lost.sum() / len(own)]
    beyond: dict[str, float] = defaultdict(float)
    for row in taking[:_ASKED]:
        then = (last == row) & (lost > 0)
        for name, ms in parts(row).items() if not then.all() else ():
            beyond[name] += float(then.sum() * (ms[then].mean() - ms[~then].mean())) / own.shape[1]
    part = max(beyond, key=lambda name: beyond[name], default="other")
    return Turns(
        ranks=tuple(ranks[row] for row in taking),
        ms=float(lost.mean()),
        low_ms=max(0.0, min(block_interval(lost)[0], lasting_low(lost))),
        share=float((lost > 0).mean()),
        part=part,
        part_ms=beyond[part],
    )
