"""What the job's operators on images would take with the channels last in memory, where they had them first.

Timed after the job's last step, on tensors of its own. Elementwise operators take the same either way.
"""

import torch

from ..rows import elements
from . import onednn, replay

_TIMED = 14
_LIMIT_NS = 700_000_000
"""For all operators together, the largest first."""
_PLACE_NS = 15_000_000
_MOVABLE = 1 << 22
"""Elements up to which an operator's tensors are made so often; larger ones lie on pages of their own anywhere."""
_LONG_MS = 12.0
"""Nor are those of an operator that takes longer than this a call: the time is for as many operators as possible."""
_TYPES = ("float32", "bfloat16")
_LEAST_PART = 0.01
"""Of what the largest takes; smaller ones change nothing."""
_POOLING_BACKWARD = "aten::max_pool2d_with_indices_backward"
_TIMEABLE = frozenset(
    "aten::" + name
    for name in (
        "convolution convolution_backward native_batch_norm native_batch_norm_backward "
        "native_group_norm native_group_norm_backward max_pool2d_with_indices max_pool2d_with_indices_backward "
        "avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
        "upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward"
    ).split()
)


def timings(ops: list, arguments: list, convolutions: list) -> list:
    """A call with the channels first and with them last; empty where no convolution's input had them first, and where
    oneDNN was off, which costs more. `convolutions`: as `library_use` tells of them."""
    first = any(row["channels_last"] is False and row["dtype"] in _TYPES for row in convolutions)
    if not first or onednn.any_native(row["kernel"] for row in convolutions):
        return []
    least_ms = 0.0

    def timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
        nonlocal least_ms
        spent_ms = op["total_ms_per_step"]
        if not _is_timeable(name, op["dtype"], shapes) or spent_ms < least_ms:
            return None
        least_ms = least_ms or _LEAST_PART * spent_ms
        with torch.autocast("cpu", enabled=False):
            places = replay.PLACES if _is_movable(op, shapes) else 1
            ways = [[_call(name, shapes, types, concrete, last) for last in (False, True)] for _ in range(places)]
            first, last = replay.in_places(ways, _PLACE_NS)
        return {"ms_per_step": spent_ms, "first_ms": first, "last_ms": last} if first > 0 else None

    return replay.rows(ops, arguments, _TIMED, _LIMIT_NS, timed)


def _is_movable(op: dict, shapes: list) -> bool:
    return sum(map(elements, shapes)) <= _MOVABLE and replay.call_ms(op) <= _LONG_MS


def _is_timeable(name: str, dtype: str, shapes: list) -> bool:
    known = name in _TIMEABLE and dtype in _TYPES
    return known and len(shapes[0]) == 4 and replay.fits(shapes)


def _call(name: str, shapes: list, types: list, concrete: list, last: bool):
    call = replay.prepared(name, shapes, types, concrete, last=last)
    if name != _POOLING_BACKWARD:
        return call
    # Which element was the largest, as a forward pass says it.
    gradient, source, *how = call.args
    indices = torch.ops.aten.max_pool2d_with_indices(source, *how[:-1])[1]
    return lambda: torch.ops.aten.max_pool2d_with_indices_backward(gradient, source, *how[:-1], indices)
