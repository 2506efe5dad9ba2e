"""What the job's own operators would cost in float32: the same shapes, timed here, both ways.

Runs inside the operator window, only when the job multiplies in a type other than float32, for a few
operators, within a time limit. Touches no random numbers and no tensor of the job.
"""

import functools
import time

import torch

_PRICED = 6
_ELEMENTS = 1 << 25
"""Largest operator replayed, in elements of its inputs: 256 MiB in float64."""
_LIMIT_NS = 60_000_000
"""For all operators together; one that takes longer is timed once."""
_SLOW_NS = 200_000_000
_REPLAYABLE = frozenset(
    "aten::" + name
    for name in (
        "mm bmm addmm baddbmm convolution convolution_backward relu threshold_backward add mul gelu "
        "gelu_backward tanh sigmoid _softmax sum sqrt native_layer_norm mkldnn_rnn_layer "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward"
    ).split()
)
_TYPES = ("float64", "float16", "bfloat16")
_TORCH_TYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
"""Names of the profiler -> names of torch."""


def prices(ops: list, arguments: list) -> list:
    """For the largest operators not in float32: microseconds a call as it is and in float32."""
    began = time.perf_counter_ns()
    found = []
    for op, (shapes, types, concrete) in zip(ops, arguments):
        if len(found) == _PRICED or time.perf_counter_ns() - began > _LIMIT_NS:
            break
        if op["dtype"] not in _TYPES or not replayable(op["name"], shapes):
            continue
        try:
            with torch.no_grad():
                native = time_call(*prepared(op["name"], shapes, types, concrete, getattr(torch, op["dtype"])))
                single = time_call(*prepared(op["name"], shapes, types, concrete, torch.float32))
        except Exception:  # not replayable with plain arguments: no price, no harm
            continue
        found.append(
            {
                "name": op["name"],
                "dtype": op["dtype"],
                "shapes": op["shapes"],
                "us": native / 1000,
                "float32_us": single / 1000,
            }
        )
    return found


def alone() -> bool:
    """Whether nobody but us would see operators that we call: no mode of the job (a counter of FLOPs, a default
    device) is around its steps."""
    return not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()


def replayable(name: str, shapes: list) -> bool:
    """Whether an operator may be called with tensors of our own: it is pure, draws no random numbers, and fits."""
    return name in _REPLAYABLE and sum(elements(shape) for shape in shapes) <= _ELEMENTS


def elements(shape) -> int:
    count = 1 if shape else 0
    for size in shape:
        count *= size if isinstance(size, int) else 0
    return count


def prepared(name: str, shapes: list, types: list, concrete: list, dtype) -> tuple:
    """The operator and arguments like the profiled ones; tensors of `dtype`, or of their own type for None."""
    values = []
    for shape, kind, constant in zip(shapes, types, concrete):
        if kind in _TORCH_TYPES:
            values.append(torch.ones(shape, dtype=dtype or getattr(torch, _TORCH_TYPES[kind])))
        else:
            values.append(constant)
    return _bound(getattr(torch.ops.aten, name.partition("::")[2]), values)


def _bound(packet, values: list) -> tuple:
    """The operator with its keyword-only arguments (`alpha` of add, `approximate` of gelu) bound, and the others."""
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if len(arguments) != len(values) or any(argument.is_out for argument in arguments):
            continue
        pairs = list(zip(arguments, values))
        if any(isinstance(value, torch.Tensor) and "Tensor" not in str(argument.type) for argument, value in pairs):
            continue
        named = {argument.name: value for argument, value in pairs if argument.kwarg_only and value is not None}
        return functools.partial(packet, **named), [value for argument, value in pairs if not argument.kwarg_only]
    return packet, values


def time_call(call, values: list) -> int:
    """Nanoseconds of one call, the fastest of up to three after a first one.

    The first loads the kernel and touches the pages: a float32 convolution was seen to take 24 ms then and 0.2 ms
    afterwards. It counts only when it is so slow that its set-up hardly matters.
    """
    best = None
    for attempt in range(4):
        began = time.perf_counter_ns()
        call(*values)
        took = time.perf_counter_ns() - began
        if attempt:
            best = took if best is None else min(best, took)
        if took > (_LIMIT_NS // 12 if attempt else _SLOW_NS):
            return best or took
    return best
