"""The job's own passes another way, after its last step: with other numbers of threads, in another type, with channels
last, without padding, on samples of like length, without activation checkpointing, with convolutions turned or of a few
channels more, and with freed memory kept.

Unlike single operators they meet fresh memory, convert what has to be converted, and hold what lies between operators.
Nothing is tried that could not pay here: each way takes as long as a pass. Times are those of the wall clock.
"""

import ctypes
import functools
import statistics
import time

import torch

from .. import procfs, settings
from ..remedies.lazy_scores import Fusing, without_weights
from . import checkpointing, intra_op, pools
from .evened import Evened, is_odd
from .inputs import each, tensors_in
from .padding import cut, typical
from .passes import PassMicrobenchmark, Way, always
from .turned import Turned

_LIMIT_NS = 3_000_000_000
"""For all ways of all calls. Ways are left out, the last first, until two rounds fit, at a stretch."""
_BESIDE_NS = 1_500_000_000
"""For a way that may not fit the model, and is tried by itself beside the passes as they are."""
_RECOMPUTED_NS = 6_000_000_000
"""The same for models that compute layers again: those are large ones, and two passes of four shapes have to fit."""
_DOUBLE = 0.1
"""Of the operators' time, in float64 or in complex numbers made of it, from which on float32 is tried."""
_FAULT_NS = 250
"""What a page fault takes at least."""
_FAULTS = 0.03
"""Of a pass, in page faults, from which on kept memory is tried."""
_MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -4, -1, -2
"""Options of mallopt (malloc.h)."""
_KEEP = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 256 << 20))


def timings(passes: PassMicrobenchmark, ops: list, attention: "list[dict]") -> dict:
    """Milliseconds of all calls as they are and each way, by name; or why there are none. `ops` and `attention` as they
    are recorded. Only for a job that is over: how glibc keeps memory is not put back, and pools of threads are gone."""
    ways = {**_threads(), **_types(ops), **_layout(passes)}
    while "missing" in (found := passes.without(ways, clock=time.perf_counter_ns, limit_ns=_LIMIT_NS)):
        if not ways or "too long" not in found["missing"]:
            return found
        ways.popitem()
    now_ms = found["now_ms"]
    times = {name: found[f"{name}_ms"] for name in ways}
    told: dict = {}
    # Each by itself beside the passes as they are, in this order: what is done for the later ones stays.
    for name, left in (
        ("without padding", _without_padding(passes, told)),
        ("of like length", _of_like_length(passes, told)),
        ("without checkpointing", _without_checkpointing(passes, told)),
        ("fused attention", _with_fused_attention(passes, attention)),
        ("long axis last", _with_long_axis_last(passes)),
        ("even channels", _with_even_channels(passes)),
        ("memory kept", _with_memory_kept(passes, now_ms)),
        ("no pool", _without_pools(passes)),
    ):
        if left is not None:
            times[name] = left * now_ms
    return {"now_ms": now_ms, "times": list(times.items()), **told}


def _left(passes: PassMicrobenchmark, way, limit_ns: int) -> "float | None":
    """What is left of the passes as they are that way, which may not fit the model; None where it cannot be made."""
    found = passes.without({"this": way}, clock=time.perf_counter_ns, limit_ns=limit_ns)
    return found["this_ms"] / found["now_ms"] if found.get("now_ms") else None


def _threads() -> dict:
    now = torch.get_num_threads()
    return {
        f"threads={count}": always(
            functools.partial(torch.set_num_threads, count), functools.partial(torch.set_num_threads, now)
        )
        for count in intra_op.counts(now)
        if count != now
    }


def _types(ops: list) -> dict:
    total = sum(op["self_ms_per_step"] for op in ops) or 1.0
    double = sum(op["self_ms_per_step"] for op in ops if op["dtype"] in ("float64", "complex128"))
    if double > _DOUBLE * total:
        return {"float32": _in_float32}
    return {"bfloat16": _under_autocast} if settings.native("bf16").get("bf16_native") else {}


def _layout(passes: PassMicrobenchmark) -> dict:
    return {"channels last": _channels_last} if _convolutions(passes) else {}


def _convolutions(passes: PassMicrobenchmark) -> list:
    """Layers that convolve images."""
    modules = [module for call in passes.calls.values() if (module := call.module()) is not None]
    return [one for module in modules for one in module.modules() if isinstance(one, torch.nn.Conv2d)]


def _under_autocast(call, module) -> Way:
    before = call.autocast

    def change() -> None:
        call.autocast = torch.bfloat16

    def put_back() -> None:
        call.autocast = before

    return Way(change, put_back)


def _in_float32(call, module) -> Way:
    def single(tensor):
        if tensor.dtype == torch.float64:
            return tensor.detach().float().requires_grad_(tensor.requires_grad)
        return tensor.to(torch.complex64) if tensor.dtype == torch.complex128 else tensor

    return _with_tensors(module, single, each(call.inputs, single))


def _channels_last(call, module) -> Way:
    def last(tensor):
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

    return _with_tensors(module, last, each(call.inputs, lambda tensor: last(tensor.detach())))


def _with_tensors(module, changed, inputs) -> Way:
    """Parameters and buffers exchanged for others, made beforehand; the way back exchanges them again."""
    held = [*module.parameters(), *module.buffers()]
    others = [changed(one.data) for one in held]
    before = [one.data for one in held]

    def exchange(tensors: list) -> None:
        for one, tensor in zip(held, tensors):
            one.data = tensor

    return Way(functools.partial(exchange, others), functools.partial(exchange, before), inputs)


def _without_padding(passes: PassMicrobenchmark, told: dict) -> "float | None":
    """What is left of the same passes on sequences that are as long as their batch needs; None where they are that
    already, or where the model takes no shorter ones. `told` is given how long the longest were, and need be."""
    longest, left = _shorter(passes, cut)
    if longest is not None:
        told.update(length=longest.length, needed=longest.needed)
    return left


def _of_like_length(passes: PassMicrobenchmark, told: dict) -> "float | None":
    """The same on sequences that are as long as those of their batch are on average."""
    longest, left = _shorter(passes, typical)
    if longest is not None:
        told.update(batch_length=longest.length, mean_length=longest.needed)
    return left


def _shorter(passes: PassMicrobenchmark, how) -> "tuple":
    """The largest of the cuts, None where there is none; and what is left of the passes with all of them."""
    cuts = {call: found for call in passes.calls.values() if (found := how(list(tensors_in(call.inputs)))) is not None}
    if not cuts:
        return None, None

    def nothing() -> None:
        pass

    def way(call, module) -> Way:
        found, inputs = cuts.get(call), None
        if found is not None:
            inputs = each(call.inputs, lambda one: found.of(one.detach()).clone().requires_grad_(one.requires_grad))
        return Way(nothing, nothing, inputs)

    return max(cuts.values(), key=lambda found: found.rows * found.length), _left(passes, way, _BESIDE_NS)


def _without_checkpointing(passes: PassMicrobenchmark, told: dict) -> "float | None":
    """What is left of passes that compute layers again, once they keep what these make; None where there is no room for
    that. `told` is given how much that is, in bytes."""
    if not passes.recomputes or not checkpointing.is_known():
        return None
    straight = checkpointing.Kept()
    with straight:
        size = passes.saved_bytes()
    if size is None or not straight.calls:
        return None
    told["kept_bytes"] = size
    way = always(straight.__enter__, lambda: straight.__exit__(None, None, None))
    return _left(passes, way, _RECOMPUTED_NS)


def _with_fused_attention(passes: PassMicrobenchmark, attention: "list[dict]") -> "float | None":
    """What is left of the same passes where attention by hand goes through the fused operator and no layer is asked for
    its weights; None where it does not, or cannot: whoever uses the weights fails."""
    if not any(one["made"] == "by hand" for one in attention):
        return None
    fused: "list[int]" = []
    mode = functools.partial(Fusing, lambda: fused.append(1), lambda: False)

    def way(call, module) -> Way:
        layers = [one for one in module.modules() if isinstance(one, torch.nn.MultiheadAttention)]
        undo: list = []

        def without(layer, args, kwargs):
            changed = without_weights(args, kwargs)
            fused.extend([1] * (changed is not None))
            return changed

        def change() -> None:
            undo.extend(layer.register_forward_pre_hook(without, with_kwargs=True).remove for layer in layers)
            entered = mode()
            entered.__enter__()
            undo.append(lambda: entered.__exit__(None, None, None))

        def put_back() -> None:
            while undo:
                undo.pop()()

        return Way(change, put_back)

    left = _left(passes, way, _BESIDE_NS)
    return left if fused else None


def _with_long_axis_last(passes: PassMicrobenchmark) -> "float | None":
    """What is left of the same passes where convolutions of images that are one number wide are turned; None where
    there are none."""
    if not any(layer.kernel_size[1] == 1 < layer.kernel_size[0] for layer in _convolutions(passes)):
        return None
    turned = Turned()
    left = _left(passes, turned.way, _BESIDE_NS)
    return left if turned.seen else None


def _with_even_channels(passes: PassMicrobenchmark) -> "float | None":
    """The same where convolutions are a few channels short of what vectors hold, and make these too."""
    if not any(map(is_odd, _convolutions(passes))):
        return None
    evened = Evened()
    left = _left(passes, evened.way, _BESIDE_NS)
    return left if evened.seen else None


def _without_pools(passes: PassMicrobenchmark) -> "float | None":
    """The same where threads of a pool do a part of the passes, and the calling thread does it instead."""
    if not pools.alive():
        return None
    # Threads that get into each other's way do so in some rounds more than in others.
    timed = functools.partial(passes.without, {}, clock=time.perf_counter_ns, limit_ns=_BESIDE_NS, of=statistics.median)
    now_ms = timed().get("now_ms")
    if not now_ms or not pools.end():
        return None
    handed: "list[int]" = []
    with pools.made_by_the_caller(handed):
        alone_ms = timed().get("now_ms")
    return alone_ms / now_ms if handed and alone_ms else None


def _with_memory_kept(passes: PassMicrobenchmark, now_ms: float) -> "float | None":
    """The same once glibc keeps what is freed, of `now_ms`; None where it cannot, or where few pages are touched
    anew."""
    libc = ctypes.CDLL(None)
    glibc = hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")
    if not glibc or procfs.libraries()["allocator"] != "glibc":
        return None
    before = procfs.counters()["minflt"]
    began = time.perf_counter_ns()
    passes.without({}, clock=time.perf_counter_ns, limit_ns=_BESIDE_NS)
    took_ns, faults = time.perf_counter_ns() - began, procfs.counters()["minflt"] - before
    if faults * _FAULT_NS < _FAULTS * took_ns:
        return None
    for option, value in _KEEP:
        libc.mallopt(option, value)
    kept_ms = passes.without({}, clock=time.perf_counter_ns, limit_ns=_BESIDE_NS).get("now_ms")
    return kept_ms / now_ms if kept_ms else None
