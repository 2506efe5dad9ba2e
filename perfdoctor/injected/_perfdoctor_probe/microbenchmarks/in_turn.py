"""A module's pass for one position of a sequence, and for many positions in one call."""

import functools
import itertools

import torch

from ..windows.equivalents import agree
from .inputs import each, tensors_in
from .passes import PassMicrobenchmark, Way, on

_MOST = 64
"""Positions in one call."""


class Turns:
    """How calls of a module follow each other. Tensors by their places among all that a call is given, or returns."""

    def __init__(self, states: "dict[int, int]", kept: "set[int]") -> None:
        self.states = states
        """Those that the call before has returned, and as which."""
        self.kept = kept
        """Those that are the same in each call."""
        self.calls = 0
        """In a row."""

    def timings(self, passes: PassMicrobenchmark) -> dict:
        """Milliseconds of a call for one position, `now_ms`, and for so many as are `together` in one, `once_ms`; or
        why there are none, as where that makes other numbers."""
        together = min(self.calls, _MOST)
        timed = passes.without({"once": functools.partial(self._once, together)})
        return {**timed, "calls": self.calls, "together": together}

    def _once(self, together: int, call, module) -> Way:
        with call.evaluating(module):
            joined = next(filter(None, (self._same(together, axis, call, module) for axis in (1, 0))), None)
        if joined is None:
            raise ValueError("all positions at once make other numbers")
        return on(joined)

    def _same(self, together: int, axis: int, call, module):
        """Arguments with so many positions along an axis, where they make what calls in turn do; else None."""
        given = list(tensors_in(call.inputs))
        moving = {place for place in range(len(given)) if place not in self.states and place not in self.kept}
        if not moving or any(given[place].dim() <= axis or given[place].shape[axis] != 1 for place in moving):
            return None
        # Positions that differ: the rows of the batch, moved on by one for each.
        parts = {place: [_moved(given[place], axis, number) for number in range(together)] for place in moving}
        states, made = {place: given[place] for place in self.states}, []
        for number in range(together):
            args, named = with_others(call.inputs, {**states, **{place: part[number] for place, part in parts.items()}})
            made.append(list(tensors_in(module(*args, **named))))
            states = {place: made[-1][returned] for place, returned in self.states.items()}
        joined = with_others(call.inputs, {place: torch.cat(part, axis) for place, part in parts.items()})
        args, named = joined
        try:
            at_once = list(tensors_in(module(*args, **named)))
        except Exception:  # it takes one position
            return None
        carried = set(self.states.values())
        pairs = [(one, [turn[place] for turn in made], place in carried) for place, one in enumerate(at_once)]
        if not pairs or len(at_once) != len(made[0]) or not all(_agrees(*pair) for pair in pairs):
            return None
        for place, tensor in enumerate(tensors_in(joined)):
            tensor.requires_grad_(given[place].requires_grad)
        return joined


def _agrees(whole, turns: list, is_state: bool) -> bool:
    """Whether a result is that of the last turn, or those of all turns side by side."""
    if is_state:
        return agree(whole, turns[-1])
    axes = (axis for axis in range(whole.dim()) if turns[0].shape[axis : axis + 1] == (1,))
    return any(
        joined.shape == whole.shape and agree(whole, joined) for joined in (torch.cat(turns, axis) for axis in axes)
    )


def _moved(tensor, axis: int, number: int):
    rows = next((one for one, size in enumerate(tensor.shape) if one != axis and size > 1), None)
    return tensor if rows is None else tensor.roll(number, rows)


def with_others(inputs, others: "dict[int, torch.Tensor]"):
    """The arguments of a call with other tensors in some places."""
    places = itertools.count()
    return each(inputs, lambda tensor: others.get(next(places), tensor))
