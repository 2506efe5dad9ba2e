"""Calls of `torch.einsum` with three operands or more: in which order they are multiplied, and what another one takes.

Without opt_einsum torch multiplies them from left to right, whatever comes to lie in between. Where another order needs
far fewer multiplications, both are run by themselves, forwards and backwards, once for each line and shapes.

All ways of writing an einsum end in `torch._VF.einsum`, also where `torch.einsum` was imported by its name.
"""

import itertools
import time
from math import prod

import torch

from ..changes import Changes
from ..rows import milliseconds
from .equivalents import agree, row

_FEWER = 0.6
"""Of the multiplications, at most, in the other order."""
_MOST = 5
"""Operands whose orders are all looked at: 120."""
_BUDGET_NS = 1_000_000_000
"""Of trying in all."""
_TIMES = 2
"""The shortest of so many passes counts."""
_clock = time.perf_counter_ns


class Order:
    """Operands one after the other."""

    __slots__ = ("equation", "largest", "multiplications", "numbers")

    def __init__(self, numbers: tuple, terms: "list[str]", out: str, sizes: "dict[str, int]") -> None:
        self.numbers = numbers
        self.equation = ",".join(terms[number] for number in numbers) + "->" + out
        self.multiplications = 0
        self.largest: "tuple[int, ...]" = ()
        """The shape of what lies in between."""
        letters = set(terms[numbers[0]])
        for at, number in enumerate(numbers[1:], 2):
            letters |= set(terms[number])
            self.multiplications += prod(sizes[letter] for letter in letters)
            letters &= {*out, *"".join(terms[later] for later in numbers[at:])}
            shape = tuple(sizes[letter] for letter in sorted(letters))
            if at < len(numbers) and prod(shape) > prod(self.largest):
                self.largest = shape


def better(equation: str, operands) -> "tuple[Order, Order] | None":
    """How they are multiplied now, and an order that takes less; None where there is none, or the sum is unusual, or
    operands are of a type of their own, as while a compiler traces."""
    if not 2 < len(operands) <= _MOST or not all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in operands):
        return None
    found = _letters(equation, operands)
    if found is None:
        return None
    orders = [Order(numbers, *found) for numbers in itertools.permutations(range(len(operands)))]
    best = min(orders, key=lambda one: one.multiplications)  # the first one is as it is
    return (orders[0], best) if best.multiplications <= _FEWER * orders[0].multiplications else None


def _letters(equation: str, operands) -> "tuple[list[str], str, dict[str, int]] | None":
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    plain = all(term.isalpha() and len(set(term)) == len(term) for term in terms)
    if not plain or [len(term) for term in terms] != [one.dim() for one in operands]:
        return None
    if not arrow:
        out = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    sizes: "dict[str, int]" = {}
    for term, one in zip(terms, operands):
        for letter, size in zip(term, one.shape):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return terms, out, sizes


class _Tried:
    """Nanoseconds of both orders."""

    __slots__ = ("equation", "now_ns", "other_ns", "shape")

    def __init__(self, now: Order, best: Order, now_ns: tuple, other_ns: tuple) -> None:
        self.equation = best.equation
        self.shape = now.largest
        self.now_ns = now_ns
        """Forwards, backwards."""
        self.other_ns = other_ns


class Einsums:
    """Of the steps from `open` to `close`."""

    def __init__(self, sites, tried) -> None:
        """`tried` is called after each try, which records nodes that are none of the job's."""
        self.sites = sites
        self.after_trying = tried
        self.changes = Changes()
        self.known: "dict[tuple, _Tried | None]" = {}
        """By line, equation and shapes."""
        self.calls: "dict[tuple, int]" = {}
        self.spent_ns = 0

    def open(self) -> None:
        """Listen from here on."""
        self.original = torch._VF.einsum
        self.run_backward = torch.autograd._engine_run_backward

        def einsum(equation, operands, **path):
            result = self.original(equation, operands, **path)
            if not path and len(operands) > 2:  # a path is an order, which opt_einsum has chosen
                try:
                    with torch._C._DisableTorchDispatch():
                        self._called(equation, operands, result)
                except Exception:  # operands of an exotic kind: this call is passed over
                    pass
            return result

        self.changes.put(torch._VF, "einsum", einsum)

    def close(self) -> None:
        """Not any more."""
        self.changes.take_back()

    def _called(self, equation: str, operands, result) -> None:
        if torch._C._current_graph_task_id() >= 0:
            return
        key = (self.sites.here(2), equation, tuple(one.shape for one in operands), torch.is_grad_enabled())
        if key not in self.known:
            self.known[key] = self._tried(equation, operands, result)
        self.calls[key] = self.calls.get(key, 0) + 1

    def _tried(self, equation: str, operands, result) -> "_Tried | None":
        found = better(equation, operands)
        if found is None or self.spent_ns > _BUDGET_NS:
            return None
        now, best = found
        began = _clock()
        try:
            same, other_ns = self._passes(best.equation, [operands[number] for number in best.numbers])
            if not agree(same, result.detach()):
                return None
            return _Tried(now, best, self._passes(equation, operands)[1], other_ns)
        finally:
            self.spent_ns += _clock() - began
            self.after_trying()

    def _passes(self, equation: str, operands) -> "tuple[torch.Tensor, tuple[int, int]]":
        """What comes out, and nanoseconds forwards and backwards."""
        recorded = torch.is_grad_enabled()
        inputs = [one.detach().requires_grad_(recorded and one.requires_grad) for one in operands]
        wanted = tuple(one for one in inputs if one.requires_grad)
        forward, backward = [], []
        for _ in range(_TIMES):
            start = _clock()
            made = self.original(equation, inputs)
            forward.append(_clock() - start)
            if wanted:
                weights = (torch.ones_like(made),)
                start = _clock()
                self.run_backward((made,), weights, False, False, wanted, True, accumulate_grad=False)
                backward.append(_clock() - start)
        return made.detach(), (min(forward), min(backward, default=0))

    def rows(self, steps: int) -> "list[dict]":
        """By line, per step of `steps`: as those of `Equivalents`."""
        found = []
        for key, calls in self.calls.items():
            tried = self.known[key]
            if tried is None or key[0] < 0:
                continue
            per_step = calls / steps
            now, other = ([milliseconds(per_step * ns, 1) for ns in way] for way in (tried.now_ns, tried.other_ns))
            if other[0] < now[0]:
                found.append({**row("einsum", key[0], per_step, tried.shape, now, other), "equation": tried.equation})
        return found
