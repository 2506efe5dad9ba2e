"""Operators by type and shape, as the operator window of a run gives them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...traces.model import NOT_SAID, Operators, Trace
from ..model import Missing, Op, OpProfile
from .flops import flops
from .window import Window

_LISTED = 60
_MOST = 2_000_000
"""Operators that are summarised: the first steps that hold so many stand for the others."""

NO_OPERATORS = Missing(
    "the trace holds no operators", "record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
)


@dataclass
class _Sum:
    calls: int = 0
    self_us: float = 0.0
    total_us: float = 0.0


def profile(trace: Trace, window: Window) -> OpProfile | Missing:
    """The operators of the window; times are the trace's own, slowed by recording it."""
    ops = trace.operators
    inside = np.flatnonzero((ops.start_us >= window.begin) & (ops.start_us < window.end))
    if not len(inside):
        return NO_OPERATORS
    part = 1.0
    if len(inside) > _MOST:
        inside = inside[:_MOST]
        part = (ops.start_us[inside[-1]] - window.begin) / (window.end - window.begin)
    ops = ops.where(inside)
    selves = self_times(ops)
    steps = window.steps * part
    sums: dict[tuple[int, int, int], _Sum] = {}
    keys = zip(ops.name.tolist(), ops.dtype.tolist(), ops.shapes.tolist(), strict=True)
    for key, own, start, end in zip(keys, selves, ops.start_us.tolist(), ops.end_us.tolist(), strict=True):
        one = sums.setdefault(key, _Sum())
        one.calls += 1
        one.self_us += own
        one.total_us += end - start
    largest = sorted(sums.items(), key=lambda item: -item[1].self_us)
    by_type: dict[str, float] = {}
    for (_, dtype, _), one in largest:
        name = trace.named(dtype)
        by_type[name] = by_type.get(name, 0.0) + one.self_us / 1000 / steps
    return OpProfile(
        steps=window.steps,
        ops=tuple(_op(trace, key, one, steps) for key, one in largest[:_LISTED]),
        ops_per_step=len(ops) / steps,
        self_ms_per_step=sum(selves) / 1000 / steps,
        self_ms_by_dtype=tuple(sorted(by_type.items())),
    )


def _op(trace: Trace, key: tuple[int, int, int], one: _Sum, steps: float) -> Op:
    name, dtype, shapes = (trace.named(index) for index in key)
    return Op(
        name=name,
        dtype=dtype,
        shapes=shapes,
        calls_per_step=one.calls / steps,
        self_ms_per_step=one.self_us / 1000 / steps,
        total_ms_per_step=one.total_us / 1000 / steps,
        flops_per_step=flops(name, shapes) * one.calls / steps,
    )


def self_times(ops: Operators) -> list[float]:
    """Microseconds of each operator without the operators that it called, which lie within it on its thread."""
    selves = (ops.end_us - ops.start_us).tolist()
    order = np.lexsort((-ops.end_us, ops.start_us, ops.thread)).tolist()
    ends, threads, durations = ops.end_us.tolist(), ops.thread.tolist(), list(selves)
    open_ones: list[int] = []
    thread = NOT_SAID
    for row in order:
        if threads[row] != thread:
            thread, open_ones = threads[row], []
        start_after = ops.start_us[row]
        while open_ones and ends[open_ones[-1]] <= start_after:
            open_ones.pop()
        if open_ones:
            selves[open_ones[-1]] -= durations[row]
        open_ones.append(row)
    return [max(0.0, own) for own in selves]
