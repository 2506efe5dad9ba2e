"""A profiler that the job itself runs, from its starts and ends."""

from __future__ import annotations

import numpy as np

from ..recording.base import NOT_TIMED
from ..recording.model import Ints, ProcessRecording
from . import memory, windows
from .model import Missing, Profiled
from .steady import Mask, Selection

_NONE = Missing("the job ran no profiler of its own")


def build(process: ProcessRecording, selection: Selection) -> Profiled | Missing:
    """Of a job that has started one."""
    started = [switched for switched in process.profiler if switched.on]
    if not started:
        return _NONE
    steps = selection.column("step")
    late = steps[steps >= (selection.first + selection.last) // 2]
    window = windows.call_sites(process)
    return Profiled(
        share=_share(_on(process, late, ends=False)),
        ending_share=_share(_on(process, late, ends=True)),
        site=started[0].site,
        options=started[-1].options,
        ops_per_step=window if isinstance(window, Missing) else window.ops / max(1, window.steps),
        timing=process.profiler_timing or NOT_TIMED,
        cycles=memory.calls(process, selection, "profiler.step"),
    )


def _share(on: Mask) -> float:
    return float(on.mean()) if on.size else 0.0


def _on(process: ProcessRecording, steps: Ints, ends: bool) -> Mask:
    """Those of `steps` that were profiled, by a profiler that `ends` by itself or not. `profiler.step()` follows the
    optimizer's, so the step in which one starts has just begun."""
    found = np.zeros(len(steps), dtype=bool)
    # Each is on until the next starts or ends; the last until the job ends.
    until = [switched.step for switched in process.profiler[1:]] + [int(steps[-1]) + 1 if len(steps) else 0]
    for switched, end in zip(process.profiler, until, strict=True):
        if switched.on and switched.ends is ends:
            found |= (steps >= switched.step) & (steps < end)
    return found
