"""What the job's largest products would take with a larger and a smaller batch: the same operators, timed here.

A product's time is a part that a larger batch does not change (launching it, reading its weights) and a part that
grows with the batch. Both follow from the time at two sizes; how much of a step is of the first kind says what a
larger batch would give. Elementwise operators are not timed: theirs is the launch, and memory in proportion.
Runs after the job's last step, on tensors of its own and within a time limit.
"""

import torch

from ..rows import elements, rounded
from . import replay

_NONE = {
    "missing": "no operator of this job could be timed with another batch",
    "remedy": "compare two runs with different batches",
}
_LARGER = 4
_LONG_LARGER = 2
_LONG_MS = 3.0
"""Operators that take longer are timed with twice the batch only ..."""
_TOO_LONG_MS = 20.0
"""... or not at all: what they take grows with the batch, or they are read from memory once a step."""
_LIMIT_NS = 400_000_000
"""For all operators together, the largest first."""
_TIMED = 16
_SMALLER_ELEMENTS = 1 << 18
"""Inputs from here on (1 MiB in float32) may outgrow a cache or the allocator's pools, so that fewer samples could
take less time each: these are timed with a quarter of the batch as well."""
_PEAK_SIZE = 176
"""Rows and columns of the product that is taken for the peak: 11 million operations, 121 KiB for each matrix."""
_FACTORS = {"aten::mm": (0, 1), "aten::addmm": (1, 2)}
"""Where the two factors of a product are."""
_BATCH_FIRST = ("aten::bmm", "aten::baddbmm", "aten::convolution", "aten::_scaled_dot_product")
"""Beginnings of names; the batch is the first dimension of whatever has as many rows as the first tensor."""
_RECURRENT = "aten::mkldnn_rnn_layer"
_RECURRENT_BATCH = {0: 1, 5: 0, 6: 0}
"""Its inputs with a batch, and where that is: a sequence of batches, and two states."""


def timings(ops: list, arguments: list, weights: "set[tuple]") -> dict:
    """A call now, with more and with fewer samples; and what to compare that with.

    `weights` are the shapes of the parameters: those do not grow with the batch.
    """

    def timed(op: dict, name: str, shapes: list, types: list, concrete: list) -> "dict | None":
        took_ms = replay.call_ms(op)
        factor = _LARGER if took_ms < _LONG_MS else _LONG_LARGER
        larger = resized(name, shapes, weights, factor, 1)
        if took_ms > _TOO_LONG_MS or larger is None or not replay.replayable(name, larger):
            return None
        sizes = [shapes, larger]
        smaller = resized(name, shapes, weights, 1, _LARGER)
        if smaller is not None and max(map(elements, shapes)) >= _SMALLER_ELEMENTS:
            sizes.append(smaller)
        times = replay.in_turns([replay.prepared(name, size, types, concrete) for size in sizes])
        return {
            "calls_per_step": op["calls_per_step"],
            "milliseconds": times[0],
            "factor": factor,
            "larger_milliseconds": times[1],
            "smaller_milliseconds": times[2] if len(times) > 2 else None,
        }

    found = replay.rows(ops, arguments, _TIMED, _LIMIT_NS, timed)
    return {"ops": found, "smaller": _LARGER, **_machine()} if found else _NONE


def resized(name: str, shapes: list, weights: "set[tuple]", factor: int, divisor: int) -> "list | None":
    """The shapes with `factor` / `divisor` times the samples; None where the batch cannot be told or divided."""
    grown = _grown(name, shapes, weights)
    if not grown or any(shapes[place][axis] % divisor for place, axis in grown.items()):
        return None
    result = list(shapes)
    for place, axis in grown.items():
        shape = list(shapes[place])
        shape[axis] = shape[axis] * factor // divisor
        result[place] = shape
    return result


def _grown(name: str, shapes: list, weights: "set[tuple]") -> "dict[int, int]":
    """Which inputs have a dimension that is the batch: place -> axis."""
    if name in _FACTORS:
        left, right = _FACTORS[name]
        rows, inner, columns = *shapes[left], shapes[right][1]
        if _is_weight((rows, columns), weights) and not _is_weight((inner, columns), weights):
            return {left: 1, right: 0}  # a weight's gradient sums over the batch
        return {left: 0}
    if name == _RECURRENT:
        return _RECURRENT_BATCH
    if name.startswith(_BATCH_FIRST):
        rows = next(shape[0] for shape in shapes if shape)
        return {
            place: 0
            for place, shape in enumerate(shapes)
            if len(shape) > 1 and shape[0] == rows and tuple(shape) not in weights
        }
    return {}


def _is_weight(shape: tuple, weights: "set[tuple]") -> bool:
    return shape in weights or shape[::-1] in weights


def _machine() -> dict:
    """What this process reaches on a float32 product that fits the caches, and the time of the smallest operator."""
    matrix, one = torch.ones(_PEAK_SIZE, _PEAK_SIZE), torch.ones(1)
    product_ms, smallest_ms = replay.in_turns([lambda: torch.mm(matrix, matrix), lambda: torch.add(one, one)])
    return {"peak_gflops": rounded(2 * _PEAK_SIZE**3 / product_ms / 1e6), "floor_ms": smallest_ms}
