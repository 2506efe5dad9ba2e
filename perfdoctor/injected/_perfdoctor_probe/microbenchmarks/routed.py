"""A model's own passes with each of its experts on the rows alone that it is there for, where all compute all rows and
most of what they give is multiplied by zero.

Such rows have no gradient. Neither have those of a critic that is not the smallest of several, which the result needs
all the same; so the passes are also made with other numbers in the place of these rows, and have to give what they
gave. Chance is left out of that: the modules are in evaluation mode for it.
"""

import functools
import math

import torch

from ..windows.equivalents import agree
from .inputs import tensors_in
from .passes import PassMicrobenchmark, Way

_LIVE = 0.5
"""Of the rows that some expert has a gradient for, those of each on average, at most: padding has none in any."""
_OTHERS = 1e3
"""In the place of the rest, with either sign in turns."""


class _NotRoutedError(Exception):
    """The model needs all rows, or cannot be run with some."""


def timings(passes: PassMicrobenchmark, experts: list) -> dict:
    """Milliseconds of the calls of the outermost modules as they are, `now_ms`, and with the `experts` on their rows
    alone, `routed_ms`, with the share of all rows that those are, `live`; or why there are none. `experts`: weak
    references to modules that are given the same rows."""
    shares: "list[float]" = []
    timed = passes.without({"routed": functools.partial(_routed, experts, shares)})
    return {**timed, "live": sum(shares) / len(shares)} if "now_ms" in timed else timed


def _routed(references: list, shares: list, call, module) -> Way:
    args, named = call.inputs
    inside = {id(one) for one in module.modules()}
    experts = [one for one in (reference() for reference in references) if id(one) in inside]
    modes = [(one, one.training) for one in module.modules()]

    def run():
        with torch.autocast("cpu", dtype=call.autocast, enabled=call.autocast is not None):
            return module(*args, **named)

    module.eval()
    try:
        rows = _rows(run, experts)
        alive = torch.stack([one.alive for one in rows])
        shares.append(float(alive.sum() / alive.any(0).sum().clamp(min=1)) / len(rows))
        if shares[-1] > _LIVE:
            raise _NotRoutedError("most rows are used")
        _check(run, rows)
    finally:
        for one, mode in modes:
            one.training = mode
    return Way(lambda: [one.take() for one in rows], lambda: [one.put_back() for one in rows])


def _rows(run, experts: list) -> "list[_Rows]":
    """What each expert is given in one pass, and which of its rows have a gradient."""
    seen: "dict[int, tuple]" = {}

    def note(expert, inputs, made) -> None:
        seen[id(expert)] = None if id(expert) in seen else (expert, inputs, made)

    handles = [expert.register_forward_hook(note) for expert in experts]
    try:
        with torch.enable_grad():
            results = [one for one in tensors_in(run()) if one.requires_grad]
    finally:
        for handle in handles:
            handle.remove()
    calls = [one for one in seen.values() if one is not None]
    if len(calls) != len(experts) or not all(_by_row(inputs, made) for _, inputs, made in calls):
        raise _NotRoutedError("an expert is called more than once, or with more than rows")
    outputs = [made for _, _, made in calls]
    weights = [torch.randn_like(one) for one in results]
    gradients = torch.autograd.grad(results, outputs, weights, allow_unused=True)
    return [_Rows(expert, made, of_it) for (expert, _, made), of_it in zip(calls, gradients)]


def _by_row(inputs: tuple, made) -> bool:
    given = inputs[0] if len(inputs) == 1 else None
    if not isinstance(given, torch.Tensor) or not isinstance(made, torch.Tensor) or made.dim() < 2:
        return False
    leading = _leading(made)
    return made.requires_grad and given.shape[:leading] == made.shape[:leading]


def _leading(made) -> int:
    """Dimensions that number the rows: of sequences both."""
    return 2 if made.dim() == 3 else 1


class _Rows:
    """Of one expert: those with a gradient, and a forward pass of these alone."""

    def __init__(self, expert, made, gradient) -> None:
        self.expert = expert
        self.leading = _leading(made)
        self.number = math.prod(made.shape[: self.leading])
        self.alive = torch.zeros(self.number, dtype=torch.bool)
        if gradient is not None:
            self.alive = gradient.detach().reshape(self.number, -1).ne(0).any(1)
        self.live = self.alive.nonzero(as_tuple=True)[0]
        self.filling = 0.0
        self.before = vars(expert).get("forward")
        self.forward = expert.forward

    def take(self) -> None:
        """From here on."""
        self.expert.forward = self._of_these

    def put_back(self) -> None:
        """Not any more."""
        if self.before is None:
            vars(self.expert).pop("forward", None)
        else:
            self.expert.forward = self.before

    def _of_these(self, given):
        rows = given.flatten(0, self.leading - 1)
        made = self.forward(rows.index_select(0, self.live))
        whole = made.new_full((self.number, *made.shape[1:]), self.filling)
        if self.filling:
            whole[::2] = -self.filling
        return whole.index_copy(0, self.live, made).unflatten(0, given.shape[: self.leading])


def _check(run, rows: "list[_Rows]") -> None:
    """Whether nobody needs the other rows."""
    with torch.no_grad():
        wanted = list(tensors_in(run()))
        for filling in (0.0, _OTHERS, -_OTHERS):
            try:
                for one in rows:
                    one.filling = filling
                    one.take()
                made = list(tensors_in(run()))
            finally:
                for one in rows:
                    one.filling = 0.0
                    one.put_back()
            if len(made) != len(wanted) or not all(map(agree, made, wanted)):
                raise _NotRoutedError("the model gives other numbers without the other rows")
