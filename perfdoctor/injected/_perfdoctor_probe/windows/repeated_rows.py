"""Modules inside another one that are given the same rows several times over: one user for each candidate, one atom for
each of its bonds, one grid for each sample.

Rows are compared by what they hold, in memory, so that no operator runs for it while the operator window is open; what
the rows that differ take by themselves is timed after the job's last step, with what they give.
"""

import ctypes
import itertools
import math

import torch

from ..microbenchmarks.inputs import tensors_in
from ..microbenchmarks.passes import PassMicrobenchmark
from .dearest import LEAST, dearest

_LEAST_ROWS = 8
_MOST_ROWS = 1 << 15
_ROWS_IN_ALL = 200_000
"""Looked at in one window: half a microsecond each."""
_MOST_BYTES = 1 << 26
"""Of inputs that are looked at and held until the window closes, in all: at 1 GB a second."""
_PREFIX = 32
"""Bytes of each row that are compared first."""
_DIFFERENT = 0.5
"""Of all rows, at most, for a module to be timed."""


class RepeatedRows:
    """Told of the calls of each module, while the operator window is open."""

    def __init__(self) -> None:
        self.found: "dict[int, tuple]" = {}
        """By `id()`: the module, its call, and what is known of its rows."""
        self.bytes = self.looked_at = 0
        self.is_of_data = False
        """The outermost module under way is given such rows, and so are those in it."""

    def enters(self, module, around: list, inputs: tuple, frame) -> None:
        """The first call, as `InParts.enters` is told."""
        known = self.is_of_data or any(id(one) in self.found for one, _ in around)
        if around and (known or next(module.parameters(), None) is None):
            return
        named = frame.f_locals.get("kwargs", {})
        counts = self._counted(list(tensors_in((inputs, named))))
        if not around:
            self.is_of_data = counts is not None
        elif counts is not None:
            passes = PassMicrobenchmark()
            passes.note(module, inputs, named)
            self.found[id(module)] = module, passes, counts

    def enters_again(self, module, inputs: tuple, frame) -> None:
        """A later call: in the first one all rows of a state may be alike, before anything has happened to them."""
        if id(module) not in self.found:
            return
        held, looked_at = self.bytes, self.looked_at
        counts = self._counted(list(tensors_in((inputs, frame.f_locals.get("kwargs", {})))))
        self.bytes = held
        if counts is None and self.looked_at > looked_at:
            del self.found[id(module)]

    def _counted(self, given: list) -> "dict | None":
        """How many rows there are and how many of them differ, where enough are the same."""
        size = sum(one.numel() * one.element_size() for one in given)
        if self.bytes + size > _MOST_BYTES:
            return None
        for flat in (False, True):
            number = _number(given, flat)
            if self.looked_at + number > _ROWS_IN_ALL:
                continue
            self.looked_at += number
            counts = _counts(given, flat) if number else None
            if counts is not None:
                self.bytes += size
                return {"rows": number, "different": counts[0], "commonest": counts[1]}
        return None

    def rows(self, of_module) -> "list[tuple[dict, PassMicrobenchmark]]":
        """As `InParts.rows` gives them."""
        found = []
        for module, passes, counts in self.found.values():
            facts, share = of_module(module)
            if share >= LEAST and len(passes.calls) == 1:
                found.append((share, {**facts, **counts}, passes))
        return dearest(found)


def _number(given: list, flat: bool) -> int:
    """Of rows that all these tensors have in common; `flat`: rows of the last of three dimensions alone. 0 where that
    are too few or too many."""
    if not given or not all(_is_plain(one) and (one.dim() == 3 if flat else one.dim()) for one in given):
        return 0
    leading = {tuple(one.shape[: _leading(flat)]) for one in given}
    number = math.prod(next(iter(leading))) if len(leading) == 1 else 0
    return number if _LEAST_ROWS <= number <= _MOST_ROWS else 0


def _leading(flat: bool) -> int:
    """Dimensions that number the rows."""
    return 2 if flat else 1


def _counts(given: list, flat: bool) -> "tuple[int, int] | None":
    """Of the rows of all these tensors together, how many differ, and how often the commonest comes; None where most
    differ but for that one, which may be padding, or rows do not lie together."""
    rows = [_Rows(one, _leading(flat)) for one in given]
    if not all(one.lie_together for one in rows):
        return None
    number = len(rows[0].places)
    for limit in (_PREFIX, None):
        met: "dict[tuple, int]" = {}
        for row in zip(*(one.read(limit) for one in rows)):
            met[row] = met.get(row, 0) + 1
            if len(met) > _DIFFERENT * number:
                return None
    commonest = max(met.values())
    return (len(met), commonest) if len(met) - 1 <= _DIFFERENT * (number - commonest) else None


def _is_plain(tensor) -> bool:
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return kind and tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.numel() > 0


class _Rows:
    """The memory of a tensor, row by row of its first `leading` dimensions."""

    def __init__(self, tensor, leading: int) -> None:
        item = tensor.element_size()
        self.size = math.prod(tensor.shape[leading:]) * item
        expected, self.lie_together = item, True
        for length, stride in reversed(list(zip(tensor.shape[leading:], tensor.stride()[leading:]))):
            self.lie_together &= length == 1 or stride * item == expected
            expected *= length
        ways = [
            range(0, length * stride * item, stride * item) if stride else (0,) * length
            for length, stride in zip(tensor.shape[:leading], tensor.stride()[:leading])
        ]
        self.places = [sum(way) for way in itertools.product(*ways)]
        length = max(self.places) + self.size
        self.memory = memoryview((ctypes.c_char * length).from_address(tensor.data_ptr())).cast("B")

    def read(self, limit: "int | None"):
        """The first bytes of each row, or all of them, one after the other."""
        size = self.size if limit is None else min(self.size, limit)
        return (self.memory[begin : begin + size].tobytes() for begin in self.places)
