"""How long launches warm up, and how long a slice is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

SLICES = 40
SLICE_NS = 50_000_000
"""Long against a switch from one arm to the other, short against what neighbours do."""
SLICE_STEPS = 5
LONG_STEP_NS = 100_000_000
LONG_SLICE_STEPS = 2
"""Of steps that long: the shortest of two says enough, and a launch ends in a minute."""
LAUNCH_NS = 20_000_000_000
"""One arm's share of a launch; long steps get fewer slices, but ..."""
FEWEST = 12

WARM_STEPS = 20
"""Before they can count as warm, in slices of five."""
COLD_STEPS = 200
"""After that many they count as warm whatever they do: both arms stand at the same step."""
_SETTLED = 1.05
"""Faster than before by more than this: still warming up. On a shared machine steps of warm jobs differ by more than
this from slice to slice, so that waiting until three slices agree took all 200 steps in 9 of 12 launches, 5 s of 13."""

CLEAN_VERDICT_S = 180.0
"""An A/A control may not make a clean verdict wait longer than this."""
CONTROL_COST = 1.5
"""Of a pair of launches, with a third one in it."""
SPARE_MEMORY = 1.5
"""Times the training processes' own peak, for their workers and for what else the machine holds."""


def why_no_control(
    pair_s: float, pairs: tuple[int, int], left_s: float, peak_bytes: float, available_bytes: float, on_device: bool
) -> str:
    """Why an A/A control is not affordable, as a clause; "" when it is.

    `pairs` are those of a clean and of a failing gate. `peak_bytes` is that of one training process. What a device has
    left is not known.
    """
    clean, failing = pairs
    if on_device:
        return "the job runs on a device, whose memory an A/A control may not find"
    if not has_room(3, peak_bytes, available_bytes):
        return "there is no memory for an A/A control"
    if CONTROL_COST * clean * pair_s > CLEAN_VERDICT_S or CONTROL_COST * failing * pair_s > left_s:
        return "it would take too long"
    return ""


FAULT_MS = 0.001
"""The least that a page fault takes. Between launches of one program with steps of 10 ms that differed by 500 to 1,000
faults per step, it was 1 to 3 us."""
FAULTS_COST = 0.01
"""Share of the step from which on they are too much. A gate finds 5 %, so its noise must be a fifth of that."""


def memory_comes_and_goes(faults: float, step_ms: float) -> bool:
    """Whether page faults alone can make launches of one program differ by more than a gate can bear.

    `faults` are those of one step. Where blocks of memory come to lie is drawn anew for each launch, and with it how
    often glibc gives memory back and takes it again: launches of a small convolutional network took 0 to 2,100 faults
    a step, 9.3 to 13.3 ms.
    """
    return faults * FAULT_MS >= FAULTS_COST * step_ms


def has_room(launches: int, peak_bytes: float, available_bytes: float) -> bool:
    """Whether there is memory, and to spare, for so many launches at once; `peak_bytes` is that of one process."""
    return SPARE_MEMORY * launches * peak_bytes <= available_bytes


def is_warm(shortest_ns: Sequence[int]) -> bool:
    """By the shortest step of each slice of five so far: the last three are no faster than what came before."""
    steps = SLICE_STEPS * len(shortest_ns)
    if steps >= COLD_STEPS:
        return True
    return steps >= WARM_STEPS and min(shortest_ns[:-3]) <= _SETTLED * min(shortest_ns[-3:])


def slice_steps(step_ns: float) -> int:
    """Steps of one slice, the same for both arms."""
    if step_ns > LONG_STEP_NS:
        return LONG_SLICE_STEPS
    return max(SLICE_STEPS, math.ceil(SLICE_NS / max(1.0, step_ns)))


def slices_for(step_ns: float, steps: int) -> int:
    """Slices of one launch."""
    return max(FEWEST, min(SLICES, int(LAUNCH_NS / max(1.0, step_ns * steps))))
