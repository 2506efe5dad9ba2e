"""What the steps of a trace do, counted: the same in every trace of a job that does the same work."""

from __future__ import annotations

import re

import numpy as np

from ...traces.model import Kind, Trace
from ..model import Counters, Missing, OpProfile
from . import names
from .window import Window

_STEP = re.compile(r"^ProfilerStep#(\d+)")
_READS, _CONVERTS, _COPIES = "aten::_local_scalar_dense", "aten::_to_copy", "aten::copy_"
_UNMARKED = Missing("the trace marks no steps", "call prof.step() after each")
_NOT_COUNTED = Missing("a trace does not count it")


def counters(trace: Trace, window: Window, ops: OpProfile | Missing) -> Counters | Missing:
    """Per step; only where steps are marked."""
    if window.boundary != "profiler":
        return _UNMARKED
    if isinstance(ops, Missing):
        return ops
    operators = trace.operators
    inside = (operators.start_us >= window.begin) & (operators.start_us < window.end)
    numbers = np.bincount(operators.name[inside], minlength=len(trace.names))
    by_name = {trace.names[one]: float(numbers[one]) / window.steps for one in np.flatnonzero(numbers)}
    torchs = {name: calls for name, calls in by_name.items() if name.startswith("aten::")}
    work = trace.work
    return Counters(
        first_step=_first(trace),
        steps=window.steps,
        aten_ops=sum(torchs.values()),
        calls=tuple(sorted(torchs.items())),
        syncs=torchs.get(_READS, 0.0),
        conversions=torchs.get(_CONVERTS, 0.0),
        copies=torchs.get(_COPIES, 0.0),
        flops=ops.flops(),
        allocations=_NOT_COUNTED,
        allocated_bytes=_NOT_COUNTED,
        kernels=float((work.kind == Kind.KERNEL).sum()) / window.steps if len(work) else _NOT_COUNTED,
        host_to_device=_copied(trace, window, "HtoD"),
        device_to_host=_copied(trace, window, "DtoH"),
        losses=(),
        graphs=_NOT_COUNTED,
        graph_breaks=_NOT_COUNTED,
    )


def _first(trace: Trace) -> int:
    found = [_STEP.match(trace.names[one]) for one in np.unique(trace.marks.name)]
    return min(int(match.group(1)) for match in found if match is not None)


def _copied(trace: Trace, window: Window, direction: str) -> float | Missing:
    if not len(trace.work):
        return _NOT_COUNTED
    copied = (trace.work.kind == Kind.COPY) & names.holding(trace.names, direction)[trace.work.name]
    return float(copied.sum()) / window.steps
