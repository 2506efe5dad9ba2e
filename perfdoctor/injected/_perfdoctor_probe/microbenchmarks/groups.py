"""What convolutions of many narrow groups would take as a few wide ones: the same numbers, with weights of 0 between
groups that are put together.

A CPU's kernels compute as many channels at once as vectors hold. Groups of one channel (depthwise) have kernels of
their own; groups of two to seven have none, and those of sixteen do several times the arithmetic in less time. Timed
after the job's last step, on tensors of its own.
"""

import torch

from . import replay

_WIDE = 16
"""Channels of a group, at least, where so many are put together."""
_NARROW = 8
"""Channels of a group, at which vectors are full."""
_PLACES = {"aten::convolution": (1, 8), "aten::convolution_backward": (2, 9)}
"""Of the weight and of the number of groups, among an operator's arguments."""
_TYPES = ("float32", "bfloat16")
_TIMED = 12
_LIMIT_NS = 500_000_000


def timings(ops: list, arguments: list) -> "list[dict]":
    """A call as it is and in wide groups, of operators as they are recorded; the largest first."""

    def timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
        if name not in _PLACES or op["dtype"] not in _TYPES or not replay.fits(shapes):
            return None
        weight_at, groups_at = _PLACES[name]
        weight, groups = shapes[weight_at], concrete[groups_at]
        together = put_together(weight, groups)
        if together is None:
            return None
        outputs, inputs, *kernel = weight
        wide_shapes, wide_concrete = list(shapes), list(concrete)
        wide_shapes[weight_at] = [outputs, inputs * together, *kernel]
        wide_concrete[groups_at] = groups // together
        ways = [
            replay.prepared(name, shapes, types, concrete),
            replay.prepared(name, wide_shapes, types, wide_concrete),
        ]
        with torch.autocast("cpu", enabled=False):
            now, wide = replay.in_turns(ways)
        spent_ms = op["total_ms_per_step"]
        return {"weight_shape": list(weight), "groups": groups, "ms_per_step": spent_ms, "now_ms": now, "wide_ms": wide}

    return replay.rows(ops, arguments, _TIMED, _LIMIT_NS, timed)


def put_together(weight: list, groups: int) -> "int | None":
    """How many groups make a wide one, for weights (outputs, inputs of a group, ...): the fewest by which they can be
    divided, or all; None where there are none, where they are wide, or of one channel each."""
    outputs, inputs = weight[0] // groups, weight[1]
    least = min(outputs, inputs)
    if groups < 2 or least >= _NARROW or outputs == inputs == 1:
        return None
    enough = (few for few in range(1, groups) if few * least >= _WIDE)
    return next((few for few in enough if not groups % few), groups)
