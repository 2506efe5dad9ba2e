"""Modules that a loop calls for one position of a sequence after the other, and gives what they have just returned: a
decoder by whose recurrent layer alone one call needs the one before.

Such a layer takes whole sequences too. Whether one call for all positions makes the same, and what it takes, is tried
after the job's last step.
"""

import ast
import weakref

from ..microbenchmarks.in_turn import Turns
from ..microbenchmarks.inputs import tensors_in
from ..microbenchmarks.passes import PassMicrobenchmark
from . import dependence
from .called_again import CalledAgain
from .dearest import dearest
from .loops import UNREADABLE

_LEAST_CALLS = 4
"""In a row, each of which is given what the one before has returned."""


class _Called:
    """A module, and how it is called."""

    def __init__(self, module) -> None:
        self.module = module
        self.made: list = []
        """Weak references to the tensors that its last call has returned, in order."""
        self.given: list = []
        """The same of those that it was given."""
        self.turns: "Turns | None" = None
        self.arguments: dict = {}
        """By place or name whether an argument is a state."""
        self.stack: list = []
        """Where the calls are."""
        self.in_turn = self.rows = 0
        """Calls that were given what the one before had returned, and how often such a row began."""
        self.passes = PassMicrobenchmark()

    @property
    def is_found(self) -> bool:
        """Whether it was once given what it had just returned."""
        return self.turns is not None


class InTurn(CalledAgain):
    """Told of each call of a module and of its end, while the operator window is open."""

    def __init__(self, sites, loops) -> None:
        super().__init__(sites, loops, _Called)

    def enters(self, module, around: list, inputs: tuple, frame) -> None:
        """`around` and `frame` as for `InParts.enters`."""
        one = self.entry(module, around)
        if one is None:
            return
        named = frame.f_locals.get("kwargs", {})
        tensors = list(tensors_in((inputs, named)))
        states = {
            place: number
            for place, tensor in enumerate(tensors)
            for number, made in enumerate(one.made)
            if made() is tensor
        }
        if not states:
            one.rows += 1
        else:
            if one.turns is None:
                kept = [place for place, (last, now) in enumerate(zip(one.given, tensors)) if last() is now]
                one.turns, one.stack = Turns(states, set(kept)), self.sites.stack(frame)
                one.arguments = _arguments(inputs, named, set(states))
            one.in_turn += one.turns.states == states
            one.passes.note(module, inputs, named)
        one.given = [weakref.ref(tensor) for tensor in tensors]

    def leaves(self, module, result) -> None:
        """A call has returned."""
        one = self.called.get(id(module))
        if one is not None:
            one.made = [weakref.ref(tensor) for tensor in tensors_in(result)]

    def rows(self, of_module) -> "list[tuple[dict, tuple[Turns, PassMicrobenchmark]]]":
        """What is known of each that may be called once, the dearest first, and what tries it. `of_module` as for
        `InParts.rows`."""
        found = []
        for one in self.called.values():
            if one.turns is None or len(one.passes.calls) != 1 or one.in_turn < _LEAST_CALLS * one.rows:
                continue
            share, facts, loop = self.in_loop(one, of_module)
            if loop is not None and loop["carries"] and "body" not in loop and self._is_free(one):
                (call,) = one.passes.calls.values()
                call.count = 1  # which stands for all
                one.turns.calls = round(one.in_turn / one.rows) + 1
                found.append((share, facts, (one.turns, one.passes)))
        return dearest(found)

    def _is_free(self, one: _Called) -> bool:
        """Whether the call needs nothing of the iteration before but the state that it is given."""
        try:
            body = self.loops.body(one.stack)
        except UNREADABLE:
            return False
        if body is None:
            return False
        loop, line, *_ = body
        calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
        here = [call for call in calls if call.lineno <= line <= call.end_lineno and _fits(call, one.arguments)]
        return any(not _carried_beside(call, one.arguments, body) for call in here)


def _arguments(inputs: tuple, named: dict, states: "set[int]") -> dict:
    """Of each argument, by its place or name, whether it is a state: all its tensors are."""
    found: dict = {}
    place = 0
    for name, value in (*enumerate(inputs), *named.items()):
        count = sum(1 for _ in tensors_in(value))
        found[name] = count > 0 and states.issuperset(range(place, place + count))
        place += count
    return found


def _fits(call, arguments: dict) -> bool:
    """Whether this may be the call that had these."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return False
    return {*range(len(call.args)), *(one.arg for one in call.keywords)} == set(arguments)


def _carried_beside(call, arguments: dict, body: tuple) -> "list[str]":
    """What the line needs from the iteration before where the call is given no state."""
    before = list(call.args), [one.value for one in call.keywords]
    nothing = ast.Constant(None)
    call.args = [nothing if arguments[place] else one for place, one in enumerate(call.args)]
    for one in call.keywords:
        one.value = nothing if arguments[one.arg] else one.value
    try:
        return dependence.carried(*body)
    finally:
        call.args = before[0]
        for one, value in zip(call.keywords, before[1]):
            one.value = value
