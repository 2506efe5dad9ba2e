"""Kernels by name, by type and by the operator that launched them."""

from __future__ import annotations

import numpy as np

from ...traces.model import NOT_SAID, Floats, Kind, Trace, Work
from ..model import KernelUse, Products
from . import names
from .flops import flops
from .layers import Modules
from .segments import Mask, Segments

_SHOWN = 12
_ASKED = 100
"""The longest calls of a kernel whose layers are looked up."""


def within(times: Floats, segments: Segments, mask: Mask) -> Mask:
    """Which moments lie in segments of the mask; NaN in none."""
    place = np.searchsorted(segments.borders, times, side="right") - 1
    inside = (place >= 0) & (place < len(mask)) & ~np.isnan(times)
    found = np.zeros(len(times), dtype=bool)
    found[inside] = mask[place[inside]]
    return found


def launched_by(trace: Trace, work: Work) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Row of the operator that asked for each piece of work, innermost; `NOT_SAID` where the trace does not say."""
    found = np.full(len(work), NOT_SAID, dtype=np.int64)
    operators = trace.operators
    if not len(operators):
        return found
    known = operators.external != NOT_SAID
    order = np.flatnonzero(known)[np.argsort(operators.external[known], kind="stable")]
    keys = operators.external[order]
    wanted = work.external.copy()
    missing = (wanted == NOT_SAID) & (work.call != NOT_SAID)
    wanted[missing] = trace.calls.external[work.call[missing]]
    place = np.clip(np.searchsorted(keys, wanted), 0, max(0, len(keys) - 1))
    hit = (wanted != NOT_SAID) & (keys[place] == wanted) if len(keys) else np.zeros(len(work), dtype=bool)
    found[hit] = order[place[hit]]
    return found


def products(trace: Trace, work: Work, steps: int) -> tuple[Products, ...]:
    """Products by the type of their arithmetic: by the kernel's name, else by the operator's inputs."""
    rows = np.flatnonzero((work.kind == Kind.KERNEL) & names.products(trace.names)[work.name])
    by_name = {int(one): names.product_type(trace.names[one]) for one in np.unique(work.name[rows])}
    owners = launched_by(trace, work)
    taken: dict[str, float] = {}
    for row in rows:
        owner = owners[row]
        stated = trace.named(int(trace.operators.dtype[owner])) if owner != NOT_SAID else ""
        dtype = by_name[int(work.name[row])] or stated
        if stated in ("bfloat16", "float16") and dtype in ("", "float32"):
            dtype = stated
        taken[dtype] = taken.get(dtype, 0.0) + float(work.end_us[row] - work.start_us[row]) / 1000
    return tuple(Products(dtype, ms / steps) for dtype, ms in sorted(taken.items(), key=lambda item: -item[1]))


def largest(trace: Trace, work: Work, steps: int) -> tuple[KernelUse, ...]:
    """The kernels that take longest, with the operator that launched most of each."""
    rows = work.kind == Kind.KERNEL
    if not rows.any():
        return ()
    took = np.where(rows, work.end_us - work.start_us, 0.0)
    ms = np.bincount(work.name, weights=took, minlength=len(trace.names)) / 1000
    calls = np.bincount(work.name[rows], minlength=len(trace.names))
    owners = launched_by(trace, work)
    modules = Modules(trace)
    found = []
    for name in np.argsort(-ms)[:_SHOWN]:
        if ms[name] <= 0:
            break
        mine = np.flatnonzero(rows & (work.name == name))
        whole = (float(ms[name]) / steps, float(calls[name]) / steps, steps)
        found.append(_use(trace, modules, int(name), whole, owners[mine], took[mine]))
    return tuple(found)


def _use(
    trace: Trace,
    modules: Modules,
    name: int,
    whole: tuple[float, float, int],
    owners: np.ndarray[tuple[int], np.dtype[np.int64]],
    took: Floats,
) -> KernelUse:
    """`whole`: milliseconds and calls per step, and steps."""
    ms, calls, steps = whole
    operator, layer, work = "", "", 0.0
    known = np.flatnonzero(owners != NOT_SAID)
    if len(known):
        operators = trace.operators
        by_operator = np.bincount(operators.name[owners[known]], weights=took[known])
        operator = trace.names[int(by_operator.argmax())]
        work = sum(
            flops(trace.named(int(operators.name[one])), trace.named(int(operators.shapes[one])))
            for one in owners[known]
        )
        by_layer: dict[str, float] = {}
        for one in known[np.argsort(-took[known])[:_ASKED]]:
            module = modules.of(int(owners[one]))
            by_layer[module] = by_layer.get(module, 0.0) + float(took[one])
        layer = max(by_layer, key=lambda module: by_layer[module])
    product = bool(names.products([trace.names[name]])[0])
    dtype = names.product_type(trace.names[name]) if product else ""
    return KernelUse(names.short(trace.names[name]), ms, calls, operator, layer, dtype, work / steps)
