"""Modules that a loop gives the beginning of a sequence, and in each iteration one position more: what they make of a
position is computed again for all that follow it.

Where later positions change nothing about it, as behind a causal mask, one call with the whole sequence makes the same.
That is tried after the job's last step.
"""

from ..microbenchmarks.by_prefix import Prefixes
from ..microbenchmarks.inputs import tensors_in
from ..microbenchmarks.passes import PassMicrobenchmark
from .called_again import CalledAgain
from .dearest import dearest

_LEAST_CALLS = 4
"""In a row, each of which is given one position more than the one before."""


class _Called:
    """A module, and how it is called."""

    def __init__(self, module) -> None:
        self.module = module
        self.given: list = []
        """Where the tensors of its last call lie, and how large they are."""
        self.growth: dict = {}
        """By place among them the dimensions in which they grow."""
        self.stack: list = []
        """Where the calls are."""
        self.grown = self.rows = 0
        """Calls that were given one position more than the one before, and how often such a row began."""
        self.largest = -1
        self.passes = PassMicrobenchmark()
        """Of the longest."""

    @property
    def is_found(self) -> bool:
        """Whether it was once given one position more."""
        return bool(self.growth)


class ByPrefix(CalledAgain):
    """Told of each call of a module, while the operator window is open."""

    def __init__(self, sites, loops) -> None:
        super().__init__(sites, loops, _Called)

    def enters(self, module, around: list, inputs: tuple, frame) -> None:
        """`around` and `frame` as for `InParts.enters`."""
        one = self.entry(module, around)
        if one is None:
            return
        named = frame.f_locals.get("kwargs", {})
        tensors = list(tensors_in((inputs, named)))
        given = [(tensor.data_ptr(), tensor.stride(), tensor._version, tuple(tensor.shape)) for tensor in tensors]
        growth = _growth(one.given, given)
        one.given = given
        if not growth:
            one.rows += 1
        elif not one.growth:
            one.growth, one.stack = growth, self.sites.stack(frame)
        one.grown += bool(growth) and growth == one.growth
        size = sum(tensor.numel() for tensor in tensors)
        if size >= one.largest:
            one.largest, one.passes = size, PassMicrobenchmark()
            one.passes.note(module, inputs, named)

    def rows(self, of_module) -> "list[tuple[dict, tuple[Prefixes, PassMicrobenchmark]]]":
        """What is known of each that may be called once, the dearest first, and what tries it. `of_module` as for
        `InParts.rows`."""
        found = []
        for one in self.called.values():
            if one.grown < _LEAST_CALLS * max(1, one.rows) or not one.passes.calls:
                continue
            share, facts, loop = self.in_loop(one, of_module)
            if loop is not None:
                prefixes = Prefixes(one.growth, round(one.grown / one.rows) + 1)
                found.append((share, {**facts, "by_prefix": True}, (prefixes, one.passes)))
        return dearest(found)


def _growth(before: list, now: list) -> dict:
    """By place the dimensions in which a tensor has one position more; nothing where anything else differs."""
    found: dict = {}
    for place, (earlier, later) in enumerate(zip(before, now)):
        axes = tuple(axis for axis, sizes in enumerate(zip(earlier[-1], later[-1])) if sizes[0] != sizes[1])
        if earlier[:-1] != later[:-1] or any(later[-1][axis] - earlier[-1][axis] != 1 for axis in axes):
            return {}
        if axes:
            found[place] = axes
    return found if len(before) == len(now) else {}
