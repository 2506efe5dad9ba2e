"""What the job's own operators would cost in float32: the same shapes, timed both ways after the last step."""

import time

import torch

from . import pricing

_PRICED = 24
_LIMIT_NS = 600_000_000
"""For all operators together."""
_TYPES = ("float64", "float16", "bfloat16")


def prices(ops: list, arguments: list) -> list:
    """For the largest operators not in float32: microseconds a call as it is and in float32."""
    began = time.perf_counter_ns()
    found = []
    for op, (shapes, types, concrete) in zip(ops, arguments):
        if len(found) == _PRICED or time.perf_counter_ns() - began > _LIMIT_NS:
            break
        if op["dtype"] not in _TYPES or not pricing.replayable(op["name"], shapes):
            continue
        try:
            native, single = pricing.in_turns(
                [
                    pricing.prepared(op["name"], shapes, types, concrete, dtype)
                    for dtype in (getattr(torch, op["dtype"]), torch.float32)
                ]
            )
        except Exception:  # not replayable with plain arguments: no price, no harm
            continue
        found.append(
            {
                "name": op["name"],
                "dtype": op["dtype"],
                "shapes": op["shapes"],
                "us": native,
                "float32_us": single,
            }
        )
    return found
