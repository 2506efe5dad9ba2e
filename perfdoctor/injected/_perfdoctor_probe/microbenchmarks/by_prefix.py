"""A module's pass for the beginning of a sequence, and for all of it."""

from ..windows.equivalents import agree
from .in_turn import with_others
from .inputs import tensors_in
from .passes import PassMicrobenchmark, Way, on


class Prefixes:
    """Calls of a module that are given one position more each time. Tensors by their places among all that a call is
    given."""

    def __init__(self, growth: "dict[int, tuple[int, ...]]", calls: int) -> None:
        """`growth`: the dimensions in which they grow. `calls`: in a row."""
        self.growth = growth
        self.calls = calls

    def timings(self, passes: PassMicrobenchmark) -> dict:
        """Milliseconds of the call in the middle of a row, `now_ms`, and of the last, `once_ms`, which makes what all
        of them do; or why there are none, as where that makes other numbers."""
        timed = passes.without({"middle": self._middle})
        if "missing" in timed:
            return timed
        return {
            "now_ms": timed["middle_ms"],
            "once_ms": timed["now_ms"],
            "calls": self.calls,
            "together": self.calls,
        }

    def _middle(self, call, module) -> Way:
        with call.evaluating(module):
            whole = _made(module, call.inputs)
            for less in (self.calls - 1, self.calls // 2, 1):
                part = _made(module, self._shorter(call.inputs, less))
                if not whole or len(part) != len(whole) or not all(map(_begins_with, whole, part)):
                    raise ValueError("what it makes of a position depends on those that follow")
        return on(self._shorter(call.inputs, self.calls // 2))

    def _shorter(self, inputs, less: int):
        """What the call was given that had so many positions less."""
        given, others = list(tensors_in(inputs)), {}
        for place, axes in self.growth.items():
            part = given[place].detach()
            for axis in axes:
                part = part.narrow(axis, 0, part.shape[axis] - less)
            others[place] = part.requires_grad_(given[place].requires_grad)
        return with_others(inputs, others)


def _made(module, inputs) -> list:
    args, named = inputs
    return list(tensors_in(module(*args, **named)))


def _begins_with(whole, part) -> bool:
    """Whether a result is the beginning of another one, along one dimension."""
    if whole.dim() != part.dim():
        return False
    axes = [axis for axis, sizes in enumerate(zip(whole.shape, part.shape)) if sizes[0] != sizes[1]]
    return len(axes) == 1 and agree(whole.narrow(axes[0], 0, part.shape[axes[0]]), part)
