"""How long a block is, and in which order blocks come."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SETTLE = 2
"""Steps after each switch that no block counts, at least; a remedy may ask for more."""
MORE = 3
"""Up to so many steps more a block has, by chance. Of blocks of one length, each with work that the job does in every
so many steps (a collection, a log line) may hold the same part of it, and a trial would see too much or too little."""
LEAST_PAIRS = 6
"""Fewer scatter so little by chance that stopping on precision would believe them."""
NOISE = 0.02
"""Of a block's mean, aimed at: pairs of such blocks show a gain of 3 % within about ten."""
_LEAST_STEPS = 4
_LEAST_MS = 60.0
"""Shorter blocks would be mostly the switching."""
_MOST_MS = 1500.0
"""Longer ones leave too few pairs; the noise of several is then averaged over pairs instead."""
_CHUNKS = 5
"""Fewer means do not tell how much they scatter."""
_TO_SIGMA = 1.4826
"""From median absolute deviation to standard deviation, for normal values."""


def block_steps(wall_ms: npt.NDArray[np.float64]) -> int:
    """Steps of a block for a job with steady steps like these, by the scatter of means over that many neighbours.

    Means of neighbours, because the steps of a block resemble each other: their noise falls slower than by the root
    of their number.
    """
    typical = float(np.median(wall_ms)) if wall_ms.size else 0.0
    if typical <= 0:
        return _LEAST_STEPS
    least = least_steps(typical)
    most = max(least, int(_MOST_MS / typical))
    steps = least
    while steps < most and _noise(wall_ms, steps) > NOISE:
        steps = min(most, max(steps + 1, steps * 3 // 2))
    return steps


def least_steps(step_ms: float) -> int:
    """Of the shortest block that is worth the switching."""
    return max(_LEAST_STEPS, int(np.ceil(_LEAST_MS / step_ms)))


def _noise(wall_ms: npt.NDArray[np.float64], steps: int) -> float:
    """Relative scatter of means of `steps` neighbours; where there are too few, as of independent ones."""
    chunks = wall_ms.size // steps
    if chunks < _CHUNKS:
        shorter = max(1, wall_ms.size // _CHUNKS)
        return _noise(wall_ms, shorter) * float(np.sqrt(shorter / steps)) if shorter < steps else 0.0
    means = wall_ms[: chunks * steps].reshape(chunks, steps).mean(axis=1)
    middle = float(np.median(means))
    return _TO_SIGMA * float(np.median(np.abs(means - middle))) / middle if middle > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """Of the blocks of a trial."""

    steps: int
    step_s: float
    epochs: int = 0
    """Where a block is whole epochs instead, of so many steps together."""
    by_save: bool = False
    """Whether `epochs` are counted by the steps that save: a block ends with one, and begins behind one."""

    @property
    def block_s(self) -> float:
        # Before whole epochs, the one in which the switch falls.
        return (self.steps + (self.steps if self.epochs else SETTLE + MORE / 2)) * self.step_s

    def drawn(self, draw: random.Random) -> int:
        """Steps of the next block."""
        return self.steps if self.epochs else self.steps + draw.randint(0, MORE)

    @property
    def least_s(self) -> float:
        """For the fewest pairs that tell anything."""
        return 2 * LEAST_PAIRS * self.block_s

    def within(self, seconds: float) -> Size:
        """Shorter blocks if these do not fit: a few noisy pairs are better than none. An epoch is as long as it is."""
        if self.epochs:
            return self
        steps, least = self.steps, least_steps(1000 * self.step_s)
        while steps > least and Size(steps, self.step_s).least_s > seconds:
            steps -= 1
        return Size(steps, self.step_s)


def orders(pairs: int, draw: random.Random) -> list[bool]:
    """Whether the remedy comes first, for each pair: as often as not, in random order.

    What drifts (a heap that grows, a neighbour that comes) is then in blocks of both kinds alike.
    """
    first = [index % 2 == 0 for index in range(pairs)]
    draw.shuffle(first)
    return first
