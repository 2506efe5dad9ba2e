"""What the job's own operators would cost in another type: the same shapes, timed both ways after the last step."""

import torch

from ..rows import FLOATING
from ..settings import native
from . import replay

_TIMED = 24
_LIMIT_NS = 600_000_000
"""For all operators together."""
_TYPES = {"float64": "float64", "float16": "float16", "bfloat16": "bfloat16", "complex128": "float64"}
"""Those that are compared with float32, and what they, or the pairs that they are, are made of."""
_PRODUCTS = frozenset(f"aten::{n}" for n in "mm addmm bmm baddbmm convolution convolution_backward".split())
"""What autocast computes in bfloat16, forward and backward."""
_PRODUCTS_TIMED = 8
_PRODUCTS_LIMIT_NS = 300_000_000


def timings(ops: list, arguments: list) -> list:
    """For the largest operators not in float32 a call as it is and in float32; for the largest products in float32, on
    a CPU that multiplies bfloat16, a call in that."""
    found = replay.rows(ops, arguments, _TIMED, _LIMIT_NS, _timed)
    if native("bf16").get("bf16_native"):
        found += replay.rows(ops, arguments, _PRODUCTS_TIMED, _PRODUCTS_LIMIT_NS, _in_bfloat16)
    return found


def _timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
    if op["dtype"] not in _TYPES or not replay.replayable(name, shapes):
        return None
    slow = _TYPES[op["dtype"]]
    # Of tensors in float64 and float32 those of one type are converted on the way, which takes its time too.
    dtypes = None if slow == "float64" else getattr(torch, slow), torch.float32
    ways = [replay.prepared(name, shapes, types, concrete, dtype) for dtype in dtypes]
    native, single = replay.in_turns(ways)
    return {"dtype": slow, "milliseconds": native, "float32_milliseconds": single}


def _in_bfloat16(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
    """Also what it takes to convert all that goes in: autocast does so with what is not in bfloat16 yet."""
    if op["dtype"] != "float32" or name not in _PRODUCTS or not replay.fits(shapes):
        return None
    kinds = torch.float32, torch.bfloat16
    single, half = (replay.prepared(name, shapes, types, concrete, kind) for kind in kinds)
    inputs = [torch.ones(shape) for shape, kind in zip(shapes, types) if kind in FLOATING]

    def convert() -> None:
        for tensor in inputs:
            tensor.to(torch.bfloat16)

    single_ms, half_ms, convert_ms = replay.in_turns([single, half, convert])
    return {
        "dtype": "float32",
        "milliseconds": single_ms,
        "float32_milliseconds": single_ms,
        "bfloat16_milliseconds": half_ms,
        "convert_milliseconds": convert_ms,
    }
