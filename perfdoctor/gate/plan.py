"""How long copies warm up, and how long a slice is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

SLICES = 40
SLICE_NS = 50_000_000
"""Long against a switch from one copy to the other, short against what neighbours do."""
SLICE_STEPS = 5
LONG_STEP_NS = 100_000_000
LONG_SLICE_STEPS = 2
"""Of steps that long: the shortest of two says enough, and a launch ends in a minute."""
LAUNCH_NS = 20_000_000_000
"""One copy's share of a launch; long steps get fewer slices, but ..."""
FEWEST = 12

WARM_STEPS = 20
"""Before they count as warm, in slices of five."""
COLD_STEPS = 200
"""After that many they count as warm whatever they do: both sides stand at the same step."""
_SETTLED = 1.05


def is_warm(shortest_ns: Sequence[int]) -> bool:
    """By the shortest step of each slice of five so far: the last three are within 5 %."""
    steps = SLICE_STEPS * len(shortest_ns)
    if steps >= COLD_STEPS:
        return True
    last = shortest_ns[-3:]
    return steps >= WARM_STEPS and max(last) <= _SETTLED * min(last)


def slice_steps(step_ns: float) -> int:
    """Steps of one slice, the same for both sides."""
    if step_ns > LONG_STEP_NS:
        return LONG_SLICE_STEPS
    return max(SLICE_STEPS, math.ceil(SLICE_NS / max(1.0, step_ns)))


def slices_for(step_ns: float, steps: int) -> int:
    """Slices of one launch."""
    return max(FEWEST, min(SLICES, int(LAUNCH_NS / max(1.0, step_ns * steps))))
