"""The span of a trace that is judged, its steps, and the thread that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...traces.model import HostSpans, Trace
from ..model import Missing
from . import names
from .segments import Floats


@dataclass(frozen=True, slots=True)
class Window:
    """First step's start to the later of the last step's end and the last work of a device, microseconds."""

    begin: float
    end: float
    step_us: Floats
    """Each step by itself; without the profiler's steps, equal parts for as many optimizer steps as there are; without
    those the whole."""
    boundary: Literal["profiler", "optimizer", "trace"]
    """What tells the steps."""
    thread: int
    """That takes the steps; -1 in a trace without a host."""

    @property
    def steps(self) -> int:
        return len(self.step_us)

    @property
    def span(self) -> tuple[float, float]:
        return self.begin, self.end

    @property
    def step_ms(self) -> float:
        return (self.end - self.begin) / 1000 / self.steps


NOTHING = Missing(
    "the trace holds neither steps, nor operators, nor work of a device",
    "record it with torch.profiler.profile() around the training loop",
)


def window(trace: Trace) -> Window | Missing:
    """By the profiler's steps; without any by the span of the device, without one by that of the host."""
    steps = _steps(trace)
    if len(steps):
        begin, end = float(steps.start_us.min()), float(steps.end_us.max())
        if len(trace.work):
            end = max(end, float(trace.work.end_us.max()))
        return Window(begin, end, steps.end_us - steps.start_us, "profiler", int(steps.thread[0]))
    for events in (trace.work, trace.operators, trace.marks):
        if len(events):
            begin, end = float(events.start_us.min()), float(events.end_us.max())
            if end > begin:
                number = _updates(trace, begin, end)
                each = np.full(max(1, number), (end - begin) / max(1, number))
                return Window(begin, end, each, "optimizer" if number else "trace", _busiest(trace))
    return NOTHING


def _steps(trace: Trace) -> HostSpans:
    """The profiler's own, of the thread that has most of them."""
    marks = trace.marks.where(names.steps(trace.names)[trace.marks.name])
    if not len(marks):
        return marks
    threads, counts = np.unique(marks.thread, return_counts=True)
    return marks.where(marks.thread == threads[counts.argmax()])


def _updates(trace: Trace, begin: float, end: float) -> int:
    """Steps of the optimizer that takes most, if it takes several."""
    marks = trace.marks.where(names.optimizer(trace.names)[trace.marks.name])
    inside = marks.where((marks.end_us > begin) & (marks.start_us < end))
    most = int(np.bincount(inside.name).max()) if len(inside) else 0
    return most if most > 1 else 0


def _busiest(trace: Trace) -> int:
    """The thread that runs optimizers; without any the one with the most operators outside the backward pass."""
    optimizers = trace.marks.where(names.optimizer(trace.names)[trace.marks.name])
    forward = trace.operators.where(~names.backward(trace.names)[trace.operators.name])
    for events in (optimizers, forward, trace.calls):
        if len(events):
            threads, counts = np.unique(events.thread, return_counts=True)
            return int(threads[counts.argmax()])
    return -1
