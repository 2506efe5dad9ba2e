"""What the host did when, as sets of intervals: the parts of the step, and calls that hold it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...traces.model import HostSpans, Trace
from ..model import Missing, Parts, Step
from ..stats import block_interval, mad
from . import names
from .segments import Floats, Mask, Segments, Set, spans
from .window import Window

_ORDER = ("input_wait", "optimizer", "backward", "forward")
"""Whose an instant is that several parts hold: a loader inside an optimizer's closure waits, all the same."""
_BRIDGED_US = 20_000.0
"""Between two operators of one part lies Python of that part, unless it lasts longer than any module's own code."""


@dataclass(frozen=True, slots=True)
class HostSets:
    """Named sets of intervals."""

    parts: Mapping[str, Set]
    """`input_wait`, `optimizer`, `backward`, `forward`: of the thread that takes the steps, and of those that run its
    backward pass."""
    allocator: Set
    copies: Set
    """Calls that copy: from pageable memory they last until it has been staged."""
    syncs: Set
    operators: Set
    """With one running on some thread."""


def host_sets(trace: Trace, window: Window) -> HostSets:
    """Of all threads; parts by annotations and operators."""
    marks, ops, calls = trace.marks, trace.operators, trace.calls
    mine = marks.where(marks.thread == window.thread)
    frames = trace.frames.where(trace.frames.thread == window.thread)
    waits: HostSpans = mine.where(names.waits_for_input(trace.names)[mine.name])
    if not len(waits):
        waits = frames.where(names.waits_for_input(trace.names)[frames.name])
    backward = names.backward(trace.names)[ops.name]
    forward = ops.where(~backward & (ops.thread == window.thread))
    engine = np.unique(ops.thread[backward])
    theirs = ops.where(np.isin(ops.thread, engine) & ((ops.thread != window.thread) | backward))
    return HostSets(
        parts={
            "input_wait": spans(waits),
            "optimizer": spans(mine.where(names.optimizer(trace.names)[mine.name])),
            "backward": spans(theirs),
            "forward": spans(forward),
        },
        allocator=spans(calls.where(names.allocator(trace.names)[calls.name])),
        copies=spans(calls.where(names.copy_calls(trace.names)[calls.name])),
        syncs=spans(calls.where(names.syncs(trace.names)[calls.name])),
        operators=spans(ops),
    )


def divided(segments: Segments) -> Mapping[str, Mask]:
    """The segments of each part, each segment in one; a pause between two of the same part is that part's."""
    owner = np.full(len(segments.lengths), -1)
    for number, name in reversed(list(enumerate(_ORDER))):
        owner[segments[name]] = number
    _bridge(owner, segments.borders)
    return {name: owner == number for number, name in enumerate(_ORDER)}


def _bridge(owner: npt.NDArray[np.int64], borders: Floats) -> None:
    """Give pauses between two segments of one owner to it."""
    owned = owner >= 0
    if not owned.any():
        return
    places = np.arange(len(owner))
    before = np.maximum.accumulate(np.where(owned, places, -1))
    after = np.minimum.accumulate(np.where(owned, places, len(owner))[::-1])[::-1]
    between = ~owned & (before >= 0) & (after < len(owner))
    one, other = before[between], after[between]
    same = (owner[one] == owner[other]) & (owner[one] != _ORDER.index("input_wait"))
    short = borders[other] - borders[one + 1] <= _BRIDGED_US
    owner[np.flatnonzero(between)[same & short]] = owner[one[same & short]]


def step(window: Window, segments: Segments, parts: Mapping[str, Mask], samples: Missing) -> Step:
    """The mean step; the trace's own, slowed by recording it."""
    per_step = {name: segments.ms(mask) / window.steps for name, mask in parts.items()}
    # The device's last work may end after the last step: it is part of the mean, so of each.
    each = window.step_us * (window.step_ms / float(window.step_us.mean()))
    low, high = block_interval(each)
    unknown = Missing("a trace does not count it", "perfdoctor check runs the job and does")
    return Step(
        boundary=window.boundary,
        count=window.steps,
        seconds=window.step_ms * window.steps / 1000,
        warmup=0,
        windowed=0,
        irregular=0,
        irregular_s=0.0,
        irregular_ms=0.0,
        step_ms=window.step_ms,
        parts=Parts(**per_step, other=max(0.0, window.step_ms - sum(per_step.values()))),
        median_ms=float(np.median(each)),
        mad_ms=mad(each),
        low_ms=low,
        high_ms=high,
        cpu_ms=window.step_ms,
        process_cpu_ms=unknown,
        run_delay_ms=unknown,
        micro_batches=1.0,
        samples=samples,
        first_step_s=unknown,
    )
