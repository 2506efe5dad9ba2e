"""What the job's own operators would cost with oneDNN, where it was off; and what replaying them later takes.

Runs after the job's last step, on tensors of its own; the switch is put back, for whatever the job does afterwards.
"""

import torch

from . import replay

_TIMED = 16
_LIMIT_NS = 800_000_000
"""For all operators together: native convolutions are slow, and some are faster than oneDNN's."""
_REPLAYED = 8
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_NATIVE = ("slow_conv", "thnn_conv", "conv_depthwise3d")
"""Parts of the names of torch's own convolutions."""


def any_native(names) -> bool:
    """Whether one of these operators is a convolution of torch's own."""
    return any(part in name for name in names for part in _NATIVE)


def timings(ops: list, arguments: list, enabled: "bool | None") -> list:
    """A call with oneDNN off and on; empty where the job had it on.

    Only what oneDNN would do: convolutions, and products in bfloat16 (those in float32 are the BLAS library's).
    """
    now = bool(torch._C._get_mkldnn_enabled())
    if not any_native(op["name"] for op in ops) and now and enabled is not False:
        return []
    return replay.rows(ops, arguments, _TIMED, _LIMIT_NS, _timed)


def _timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
    dtype = op["dtype"]
    wanted = name in _CONVOLUTIONS and dtype in ("float32", "bfloat16")
    wanted = wanted or (name in _PRODUCTS and dtype == "bfloat16")
    if not wanted or not replay.replayable(name, shapes):
        return None
    off, on = off_and_on([replay.prepared(name, shapes, types, concrete)])
    return {"dtype": dtype, "native_milliseconds": off, "onednn_milliseconds": on}


def off_and_on(calls: list) -> "list[float]":
    """Milliseconds with oneDNN off and on, of calls that differ by where their tensors lie; the switch is left as it
    was."""
    now = bool(torch._C._get_mkldnn_enabled())

    def switched(call, enabled: bool):
        def run() -> None:
            torch._C._set_mkldnn_enabled(enabled)
            call()

        return run

    try:
        return replay.in_places([[switched(call, enabled) for enabled in (False, True)] for call in calls])
    finally:
        torch._C._set_mkldnn_enabled(now)


def replays(ops: list, arguments: list) -> list:
    """The largest operators with all that calling them again takes, in another process after the job."""
    found = []
    for op, (name, shapes, types, concrete) in zip(ops, arguments):
        if len(found) == _REPLAYED:
            break
        if replay.replayable(name, shapes) or _in_place(name, shapes):
            called = {"name": name, "shapes": shapes, "types": types, "concrete": concrete}
            found.append({**called, "dtype": op["dtype"], "calls_per_step": op["calls_per_step"]})
    return found


def _in_place(name: str, shapes: list) -> bool:
    """Optimizers work in place; on tensors of their own that is as harmless."""
    return name.endswith("_") and replay.replayable(name[:-1], shapes)
