"""What the job's own operators would cost in float32: the same shapes, timed both ways after the last step."""

import time

import torch

from . import replay

_TIMED = 24
_LIMIT_NS = 600_000_000
"""For all operators together."""
_TYPES = ("float64", "float16", "bfloat16")


def timings(ops: list, arguments: list) -> list:
    """For the largest operators not in float32: a call as it is and in float32."""
    began = time.perf_counter_ns()
    found = []
    for op, (name, shapes, types, concrete) in zip(ops, arguments):
        if len(found) == _TIMED or time.perf_counter_ns() - began > _LIMIT_NS:
            break
        if op["dtype"] not in _TYPES or not replay.replayable(name, shapes):
            continue
        try:
            native, single = replay.in_turns(
                [
                    replay.prepared(name, shapes, types, concrete, dtype)
                    for dtype in (getattr(torch, op["dtype"]), torch.float32)
                ]
            )
        except Exception:  # not replayable with plain arguments: no timing, no harm
            continue
        found.append(
            {
                "name": op["name"],
                "shapes": op["shapes"],
                "dtype": op["dtype"],
                "milliseconds": native,
                "float32_milliseconds": single,
            }
        )
    return found
