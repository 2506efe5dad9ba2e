"""Which module of the model an operator belongs to, by the profiler's Python frames."""

from __future__ import annotations

import numpy as np

from ...traces.model import NOT_SAID, HostSpans, Trace
from .lines import lasting

_MODULE = "nn.Module: "


class Modules:
    """Frames of modules; operators of the backward pass belong where their forward ones do."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        named = np.fromiter((name.startswith(_MODULE) for name in trace.names), bool, len(trace.names))
        self._frames: dict[int, HostSpans] = {}
        modules = trace.frames.where(named[trace.frames.name])
        for thread in np.unique(modules.thread):
            self._frames[int(thread)] = modules.where(modules.thread == thread)
        sequences = trace.operators.sequence
        known = np.flatnonzero(sequences != NOT_SAID)
        self._forward: dict[int, int] = {}
        for row in known[::-1] if self._frames else ():
            self._forward[int(sequences[row])] = int(row)  # the first with a number is the forward one

    def of(self, operator: int) -> str:
        """`Linear_3`; "" where the trace does not say."""
        operators = self._trace.operators
        forward = self._forward.get(int(operators.sequence[operator]), operator)
        for row in (operator, forward):
            frames = self._frames.get(int(operators.thread[row]))
            if frames is None:
                continue
            found = lasting(frames.start_us, frames.end_us, float(operators.start_us[row]))
            if found is not None:
                return self._trace.named(int(frames.name[found])).removeprefix(_MODULE)
        return ""
