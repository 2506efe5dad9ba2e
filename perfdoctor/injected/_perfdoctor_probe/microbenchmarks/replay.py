"""Operators called again on tensors of our own, and how such calls are timed.

Touches no random numbers and no tensor of the job.
"""

import functools
import time

import torch

from ..rows import COMPLEX, FLOATING, elements, milliseconds

_ELEMENTS = 1 << 25
"""Largest operator replayed, in elements of its inputs: 256 MiB in float64."""
_ROUNDS = 7
_LIMIT_NS = 40_000_000
"""For the rounds of one comparison; the round in which it is reached is the last."""
_SHORT_MS = 0.05
_LONG_MS = 200.0
"""Calls from which on loading their kernels is a small part of the first."""
PLACES = 3
"""Tensors in so many places in memory: in one of them a convolution took 10.1 ms that takes 7.8 ms in others, and an
LSTM 35 ms that takes 26 ms in most."""
_IN_A_ROW = 10
"""Calls shorter than that are made ten times in a row, so that reading the clock does not count."""
_REPLAYABLE = frozenset(
    "aten::" + name
    for name in (
        "mm bmm addmm baddbmm convolution convolution_backward mkldnn_rnn_layer "
        "relu threshold_backward gelu gelu_backward silu silu_backward tanh tanh_backward sigmoid sigmoid_backward "
        "leaky_relu leaky_relu_backward elu elu_backward softplus "
        "add sub mul div neg abs pow sqrt rsqrt exp log sin cos clamp where sum mean var maximum minimum "
        "log1p log2 log10 expm1 erf erfc tan atan atan2 asin acos sinh cosh reciprocal sign round floor ceil square "
        "lerp addcmul addcdiv cumsum prod amax amin std norm linalg_vector_norm logsumexp hypot nan_to_num "
        "_fft_r2c _fft_c2r _fft_c2c "
        "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
        "native_layer_norm native_layer_norm_backward mse_loss mse_loss_backward "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward"
    ).split()
)


def alone() -> bool:
    """Whether nobody but us would see operators that we call: no mode of the job (a counter of FLOPs, a default
    device) is around its steps."""
    return not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack()


def replayable(name: str, shapes: list) -> bool:
    """Whether an operator may be called with tensors of our own: it is pure, draws no random numbers, and fits."""
    return name in _REPLAYABLE and fits(shapes)


def fits(shapes: list) -> bool:
    """Whether tensors of these shapes may be made."""
    return sum(map(elements, shapes)) <= _ELEMENTS


def call_ms(op: dict) -> float:
    """One call of an operator of the window, milliseconds."""
    return op["total_ms_per_step"] / op["calls_per_step"]


def rows(ops: list, arguments: list, most: int, limit_ns: int, timed) -> "list[dict]":
    """What `timed(op, name, shapes, types, concrete)` says of the first operators, the largest, until there are `most`
    rows or the time is up. It gives None for an operator that it leaves out."""
    began = time.perf_counter_ns()
    found: "list[dict]" = []
    for op, called in zip(ops, arguments):
        if len(found) == most or time.perf_counter_ns() - began > limit_ns:
            break
        try:
            row = timed(op, *called)
        except Exception:  # not replayable with plain arguments: no timing, no harm
            continue
        if row is not None:
            found.append({"name": op["name"], "shapes": op["shapes"], **row})
    return found


def prepared(name: str, shapes: list, types: list, concrete: list, dtype=None, last: bool = False):
    """A call of the operator with arguments like the profiled ones; tensors of `dtype`, or of their own type (complex
    ones are of pairs of it), those of four dimensions with the second of them `last` in memory."""
    values = []
    pairs = dtype and dtype.to_complex()
    for shape, kind, constant in zip(shapes, types, concrete):
        if kind in FLOATING:
            tensor = torch.ones(shape, dtype=dtype or getattr(torch, FLOATING[kind]))
            values.append(tensor.contiguous(memory_format=torch.channels_last) if last and len(shape) == 4 else tensor)
        elif kind in COMPLEX:
            values.append(torch.ones(shape, dtype=pairs or getattr(torch, COMPLEX[kind])))
        else:
            values.append(constant)
    return _bound(getattr(torch.ops.aten, name.partition("::")[2]), values)


def _bound(packet, values: list):
    """With keyword-only arguments (`alpha` of add, `approximate` of gelu) where they belong."""
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if len(arguments) != len(values) or any(argument.is_out for argument in arguments):
            continue
        pairs = list(zip(arguments, values))
        if any(isinstance(value, torch.Tensor) and "Tensor" not in str(argument.type) for argument, value in pairs):
            continue
        named = {argument.name: value for argument, value in pairs if argument.kwarg_only and value is not None}
        return functools.partial(packet, *(value for argument, value in pairs if not argument.kwarg_only), **named)
    return functools.partial(packet, *values)


def run_backward(result, gradient, inputs: tuple) -> None:
    """Not through torch.autograd: the job's backward passes are counted there."""
    torch.autograd.Variable._execution_engine.run_backward((result,), (gradient,), False, False, inputs, True, False)


def in_turns(ways: list, limit_ns: int = _LIMIT_NS, clock=None, of=min) -> "list[float]":
    """Milliseconds of one call of each, `of` some rounds in which they take turns: the fastest, unless one is asked for
    that is as the others are, of what disturbs itself.

    Of the calling thread's CPU time, unless another `clock` is asked for: beside a busy neighbour a call that is longer
    than a time slice never runs through, and a quarter of it does, which made quarters look twice as fast. What else
    disturbs only ever adds, and in turns it disturbs all alike. The first round counts only if it took ten times the
    limit, or the limit in long calls: it loads the kernels and touches the pages (an LSTM of oneDNN took 55 ms then,
    1 ms afterwards).
    """
    clock = clock or time.thread_time_ns
    began = time.perf_counter_ns()
    in_a_row = [1] * len(ways)
    rounds: "list[list[float]]" = []
    for attempt in range(1 + _ROUNDS):
        times = []
        for way, calls in zip(ways, in_a_row):
            start = clock()
            for _ in range(calls):
                way()
            times.append(milliseconds(clock() - start, calls))
        rounds.append(times)
        counts = attempt or min(times) > _LONG_MS
        if time.perf_counter_ns() - began > (limit_ns if counts else 10 * limit_ns):
            break
        if not attempt:
            began = time.perf_counter_ns()
            in_a_row = [_IN_A_ROW if took < _SHORT_MS else 1 for took in times]
    return [of(times) for times in zip(*(rounds[1:] or rounds))]


def in_places(sets: list, limit_ns: int = _LIMIT_NS) -> "list[float]":
    """`in_turns` of the same ways on several sets of tensors, each way in the best of their places; all sets are there
    at once, so that they lie in different ones."""
    return [min(times) for times in zip(*(in_turns(ways, limit_ns) for ways in sets))]
