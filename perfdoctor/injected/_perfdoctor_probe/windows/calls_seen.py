"""Calls of operators as a window sees them: from where they came, what they took, and whose values they repeat."""

import math

import torch

_COMPARED_NS = 20_000
"""An operator that takes longer: numbers of its results are compared too."""
_READ = 64
"""Numbers that are compared: all over the result."""
_SAME = 1e-5
"""Of the largest of them: kernels may add in another order."""


class Node:
    """What the backward pass does for a call."""

    __slots__ = ("before", "number", "spent_ns", "task")

    def __init__(self) -> None:
        self.spent_ns = 0
        self.number = self.before = 0
        """That `PassesAgain` gives the pass that came through here last, and the one before; 0 for none."""
        self.task = -1
        """The number that torch gives the pass; -1 before it came through here."""

    def comes(self, task: int, number: int) -> None:
        """An operator of this node runs in a pass."""
        if task != self.task:
            self.task, self.before, self.number = task, self.number, number


class Made:
    """A call that was looked at."""

    __slots__ = (
        "first",
        "func",
        "graph",
        "is_used_up",
        "node",
        "number",
        "numbers",
        "reads_parameters",
        "spent_ns",
        "stack",
        "step",
    )

    def __init__(self, func, stack: tuple, step: int, graph: "int | None") -> None:
        self.func = func
        self.stack = stack
        """The user's lines that led to it, the outermost first."""
        self.step = step
        self.graph = graph
        """As of a `Call`."""
        self.node = Node() if graph is not None else None
        self.spent_ns = 0
        self.numbers: "list | None" = None
        self.first: "Made | None" = None
        """The call that has computed the same before, where that would do."""
        self.number = -1
        """Of its values; -1 where they are not known."""
        self.reads_parameters = False
        self.is_used_up = False
        """What it made was changed in place, by a call that does not repeat one."""

    def repeats(self, before: "list[Made]") -> None:
        """Says whose values would do, of calls with the same ones."""
        if self.graph is None:
            if before:
                self.first = before[-1]
            return
        # With several models, the first one's update lies between passes on the same batch and ends a step.
        now = [one for one in before if one.step >= self.step - 1]
        for one in now:
            if one.graph == self.graph and one.node.task < 0:
                self.first = one
                return
        for one in now:
            # Computed without a graph first: that call could have waited for this one.
            if one.graph is None and one.first is None:
                one.first = self

    def compare(self, result) -> bool:
        """Whether it holds what it would have to, if it repeats a call."""
        if type(result) is torch.Tensor and self.spent_ns >= _COMPARED_NS and result.device.type == "cpu":
            self.numbers = _numbers(result)
        first = self.first
        if first is None or self.numbers is None or first.numbers is None or _are_same(first.numbers, self.numbers):
            return True
        self.first = None
        return False


def passed_ns(one: Made) -> int:
    """What its node took in the backward pass."""
    return one.node.spent_ns if one.node is not None and one.node.task >= 0 else 0


def backward_ns(one: Made) -> int:
    """What its nodes took, where one pass has come through both: their gradients could have been added first."""
    if one.node is None or one.first.node is None or one.node.task < 0 or one.node.task != one.first.node.task:
        return 0
    return one.node.spent_ns


def spent_ns(calls: "list[Made]") -> int:
    return sum(one.spent_ns + backward_ns(one) for one in calls)


def _numbers(result) -> "list | None":
    """Some from all over its memory, whatever its strides are."""
    if result.layout is not torch.strided or not result.numel():
        return None
    count = result.untyped_storage().nbytes() // result.element_size()
    apart = max(1, count // _READ)
    some = result.as_strided((min(_READ, -(-count // apart)),), (apart,), 0)
    # Not the stand-in of `aside`: nobody is told these.
    return torch._C.TensorBase.tolist(some)


def _are_same(one: list, other: list) -> bool:
    if len(one) != len(other) or isinstance(one[0], complex):
        return one == other
    within = _SAME * max((abs(number) for number in one if math.isfinite(number)), default=0.0)
    return all(a == b or abs(a - b) <= within or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other))
