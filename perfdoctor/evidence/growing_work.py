"""Operators that go through more numbers with each step, as they are in the mean of the steps seen."""

from __future__ import annotations

from dataclasses import replace

from ..recording.model import ProcessRecording
from .model import GrowingWork, Missing, Step
from .stats import trimmed_mean
from .steady import Selection
from .windows import in_a_step

_AS_LONG = 0.5
"""Of what steps had to get longer by, were it to grow on: the least that they do. Else it starts anew now and then, as
a metric does that is reset where an epoch ends: the window has seen a part of an epoch."""
_SHOWS = 0.1
"""Of the mean step, what steps must have to get longer by: less is within their noise."""


def build(process: ProcessRecording, steps: Selection, step: Step | Missing) -> tuple[GrowingWork, ...] | Missing:
    """The dearest first."""
    if isinstance(step, Missing):
        return step
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    last = int(steps.column("step")[-1])
    wall = steps.column("wall_us") / 1000
    # How much longer a step is in the mean than it was around the window.
    longer_ms = trimmed_mean(wall) - steps.around(window.first_step, wall)
    found = []
    for one in window.growing:
        as_seen = replace(one, forward_ms=one.forward_ms * scale, steps=last)
        now = _in_the_mean(as_seen, window.first_step, longer_ms, step)
        if now.starts_anew:
            # Of a metric that is computed once, nothing is left of what else its line computes for it.
            whole_ms = scale * sum(other.forward_ms for other in window.metrics if other.at == one.at)
            now = replace(now, forward_ms=now.forward_ms + max(0.0, whole_ms - as_seen.forward_ms))
        found.append(now)
    return tuple(found)


def _in_the_mean(one: GrowingWork, since: int, longer_ms: float, step: Step) -> GrowingWork:
    """With the numbers that it reads in the middle of the steps; where steps do not tell of so many, by these."""
    numbers = max(one.numbers, one.numbers + (one.steps // 2 - since) * one.more)
    grown_ms = one.forward_ms * (numbers / one.numbers - 1)
    if longer_ms >= _AS_LONG * grown_ms or grown_ms < _SHOWS * step.step_ms:
        return replace(one, forward_ms=one.forward_ms + grown_ms, numbers=numbers)
    ms = one.forward_ms + max(0.0, longer_ms)
    return replace(one, forward_ms=ms, numbers=round(one.numbers * ms / one.forward_ms), starts_anew=True)
