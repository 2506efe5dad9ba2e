"""What the job's own operators would cost in float32: the same shapes, timed both ways after the last step."""

import torch

from . import replay

_TIMED = 24
_LIMIT_NS = 600_000_000
"""For all operators together."""
_TYPES = ("float64", "float16", "bfloat16")


def timings(ops: list, arguments: list) -> list:
    """For the largest operators not in float32: a call as it is and in float32."""
    return replay.rows(ops, arguments, _TIMED, _LIMIT_NS, _timed)


def _timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
    if op["dtype"] not in _TYPES or not replay.replayable(name, shapes):
        return None
    dtypes = getattr(torch, op["dtype"]), torch.float32
    ways = [replay.prepared(name, shapes, types, concrete, dtype) for dtype in dtypes]
    native, single = replay.in_turns(ways)
    return {"dtype": op["dtype"], "milliseconds": native, "float32_milliseconds": single}
