"""Operators that go through more numbers with each step: the beginning of a tensor that is longer each time, or parts
that are joined, of which there are more each time; and what is computed of that.

Of sizes alone nothing is told, since sequences differ in length: one and the same tensor has to be read further by as
many numbers each time, or a call has to be given as many more tensors each time. Twice is enough where it is one row
further, or one more tensor: of a loop that takes two steps for each.
"""

import math

import torch

from ..hooks.held_out import tensors
from ..rows import milliseconds, rounded
from .by_line import names

_aten = torch.ops.aten
_PICKS = (_aten.index.Tensor, _aten.index_select.default, _aten.embedding.default, _aten.gather.default)
"""Operators that take as long whatever the size of what they pick from."""
_LEAST_NS = 20_000
"""Of a call: less is not followed."""
_LEAST_TIMES = 2
_LEAST = 0.02
"""Of all operators' time: less is not told."""
_KEPT = 5
"""Rows kept, the largest."""


class _Seen:
    """A call of an operator in one step."""

    __slots__ = ("count", "made", "parents", "shape", "storage")

    def __init__(self, made, shape: tuple, count: int, storage: int, parents: frozenset) -> None:
        self.made = made
        self.shape = shape
        """Of the largest tensor that it reads; of those that it joins, how many numbers they have together."""
        self.count = count
        """Tensors that it joins."""
        self.storage = storage
        """Of the largest tensor, its address; 0 where the step has made it."""
        self.parents = parents
        """Calls that have made what it reads."""

    @property
    def numbers(self) -> int:
        """In the largest tensor."""
        return math.prod(self.shape)


class Growing:
    """Follows calls through the steps of a window."""

    def __init__(self, values) -> None:
        self.values = values
        self.step = -1
        self.calls: "dict[tuple, dict[int, _Seen]]" = {}
        """By operator, lines and their number in the step; by step."""
        self.made_by: "dict[int, tuple]" = {}
        """Of this step, by the address of what a call has made."""
        self.times: "dict[tuple, int]" = {}
        self.parts: "set[tuple]" = set()
        """Calls that read a part of a tensor."""

    def ended(self, made, args: tuple, kwargs: dict, result) -> None:
        """A call of the forward pass."""
        if made.step != self.step:
            self.step, self.made_by, self.times = made.step, {}, {}
        if made.spent_ns < _LEAST_NS or made.func in _PICKS:
            return
        read = list(tensors((args, kwargs)))
        if not read:
            return
        largest = max(read, key=lambda one: one.numel())
        places = [self.values.holder(one) for one in read]
        parents = frozenset(self.made_by[at] for at in places if at in self.made_by)
        at = self.values.holder(largest) or 0
        place = made.func, made.stack
        number = self.times[place] = self.times.get(place, 0) + 1
        key = *place, number
        joined = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 0
        shape = tuple(largest.shape) if not joined else (sum(one.numel() for one in read),)
        seen = _Seen(made, shape, joined, 0 if at in self.made_by else at, parents)
        self.calls.setdefault(key, {})[made.step] = seen
        if seen.storage and largest.numel() * largest.element_size() < largest.untyped_storage().nbytes():
            self.parts.add(key)
        for one in tensors(result):
            address = self.values.holder(one)
            if address is not None:
                self.made_by[address] = key

    def waits(self) -> bool:
        """Whether something reads a part of a tensor that has been seen doing so once only."""
        return any(len(self.calls[key]) < _LEAST_TIMES for key in self.parts)

    def rows(self, steps: int, whole_ns: float, sites) -> "list[dict]":
        """By line, per step of `steps`, the dearest first."""
        told: "dict[tuple, bool]" = {}
        by_line: "dict[tuple, list[list[_Seen]]]" = {}
        for key in self.calls:
            if self._grows(key, told) and key[1]:
                by_line.setdefault(key[1][-1], []).append([seen for _, seen in sorted(self.calls[key].items())])
        found = [self._row(line, calls, steps, sites) for line, calls in by_line.items()]
        worth = [row for row in found if row["forward_ms"] * steps * 1e6 >= _LEAST * whole_ns]
        return sorted(worth, key=lambda row: -row["forward_ms"])[:_KEPT]

    def _grows(self, key: tuple, told: "dict[tuple, bool]") -> bool:
        if key not in told:
            told[key] = False  # what goes round in a circle has no beginning
            seen = [one for _, one in sorted(self.calls[key].items())]
            if len(seen) >= _LEAST_TIMES and _rises([one.numbers for one in seen]) and _is_sure(seen):
                storages = {one.storage for one in seen}
                told[key] = (
                    (len(storages) == 1 and storages != {0})
                    or _rises([one.count for one in seen])
                    or any(self._grows(one, told) for one in seen[-1].parents)
                )
        return told[key]

    @staticmethod
    def _row(line: tuple, calls: "list[list[_Seen]]", steps: int, sites) -> dict:
        largest = max(calls, key=lambda seen: seen[-1].numbers)
        made = [one.made for seen in calls for one in seen]
        return {
            "at": sites.number((*line, None)),
            "forward_ms": milliseconds(sum(one.spent_ns for one in made), steps),
            "ops_per_step": rounded(len(made) / steps),
            "numbers": largest[len(largest) // 2].numbers,
            "more": (largest[-1].numbers - largest[0].numbers) // (largest[-1].made.step - largest[0].made.step),
            "operators": names(made),
        }


def _rises(numbers: "list[int]") -> bool:
    """Whether each is as much larger than the one before."""
    more = {numbers[at] - numbers[at - 1] for at in range(1, len(numbers))}
    return len(more) == 1 and more.pop() > 0


def _is_sure(seen: "list[_Seen]") -> bool:
    """Of two calls alone: one row further."""
    if len(seen) > 2:
        return True
    one, other = (call.shape for call in seen)
    more = [later - before for before, later in zip(one, other)] if len(one) == len(other) else []
    return sorted(more)[-1:] == [1] and sum(map(abs, more)) == 1
