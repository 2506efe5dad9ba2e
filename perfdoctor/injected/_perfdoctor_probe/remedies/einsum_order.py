"""Einsums of several operands in the order that takes fewest multiplications."""

import torch

from ..windows.einsums import better, is_ordered
from .base import Remedy, UnsuitableError


class InOrder(Remedy):
    """Operands of `torch.einsum` are handed over in another order, where that takes far fewer multiplications."""

    def apply(self) -> None:
        if is_ordered():
            raise UnsuitableError("opt_einsum chooses the order already")
        self.orders: dict = {}
        """By equation and shapes: another order, or None."""
        original = torch.functional.einsum

        def einsum(*args):
            order = self._order(*args)
            if order is None:
                return original(*args)
            return original(order.equation, *(args[1 + number] for number in order.numbers))

        for owner in (torch, torch.functional):
            self.changes.put(owner, "einsum", einsum)

    def lost(self) -> str:
        return "" if any(self.orders.values()) else "no einsum was called that another order helps"

    def _order(self, equation, *operands):
        if not isinstance(equation, str) or len(operands) < 3 or not all(map(_is_plain, operands)):
            return None
        key = equation, tuple(one.shape for one in operands)
        if key not in self.orders:
            found = better(equation, list(operands))
            self.orders[key] = found and found[1]
        return self.orders[key]


def _is_plain(operand) -> bool:
    return type(operand) in (torch.Tensor, torch.nn.Parameter)
