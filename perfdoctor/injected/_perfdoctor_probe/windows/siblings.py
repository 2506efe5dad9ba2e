"""Modules of one class that a loop calls one after the other, none of which needs the one before: heads, members of an
ensemble.

One module that holds the weights of all could be called once; what that takes is timed after the job's last step. Of
experts that are given the same rows some may be needed for few of them: what they take on these is timed then too.
"""

import weakref

from ..microbenchmarks.passes import PassMicrobenchmark, tensors_in
from .dearest import LEAST, dearest

_LEAST_MEMBERS = 4
_MOST_BYTES = 1 << 26
"""Of inputs that are held until the window closes, in all."""


class Siblings:
    """Modules that one module calls at one line, and with what, in their first calls."""

    def __init__(self, stack: list) -> None:
        self.stack = stack
        self.modules: list = []
        """Until the window is closed."""
        self.passes: "list[PassMicrobenchmark]" = []
        """The call of each."""
        self.given: "dict[tuple, list]" = {}
        """The tensors that they are given, by `id()`, with their bytes."""

    @property
    def same_input(self) -> bool:
        """Whether all are given the same tensors."""
        return len(self.given) == 1

    def keep(self, operators_ms: float) -> None:
        """The window is closed, as for `PassMicrobenchmark.keep`. What all are given is copied once."""
        self.modules = []
        first, *others = self.passes
        first.keep(operators_ms)
        for passes in others:
            if self.same_input:
                passes.share_inputs(first)
            else:
                passes.keep(operators_ms)

    def calls(self) -> list:
        """One of each, where all could be kept; else none."""
        calls = [call for passes in self.passes for call in passes.calls.values()]
        return calls if len(calls) == len(self.passes) else []


class Families:
    """Told of the first call of each module inside another one, while the operator window is open."""

    def __init__(self, sites, loops) -> None:
        self.sites = sites
        self.loops = loops
        self.found: "dict[tuple, Siblings]" = {}
        self.latest: "dict[int, tuple]" = {}
        """Of each module that calls others, what it has called last."""
        self.held: "dict[int, int]" = {}
        """How many siblings are given a tensor, by `id()`."""
        self.bytes = 0

    def enters(self, module, line: int, around: list, inputs: tuple, frame) -> None:
        """`line`: of the user's that leads to the call. `around`, `inputs`, `frame` as for `InParts.enters`."""
        if not around or next(module.parameters(), None) is None:
            return
        named, parent = frame.f_locals.get("kwargs", {}), id(around[-1][0])
        key = (parent, type(module), line)
        if self.latest.get(parent, key) != key:
            self._let_go(self.latest[parent])
        self.latest[parent] = key
        siblings = self.found.get(key)
        if siblings is None:
            siblings = self.found[key] = Siblings(self.sites.stack(frame))
        given = [(id(one), one.numel() * one.element_size()) for one in tensors_in((inputs, named))]
        ids = tuple(one for one, _ in given)
        if ids not in siblings.given:
            siblings.given[ids] = given
            self._holds(given, 1)
        if self.bytes <= _MOST_BYTES:
            passes = PassMicrobenchmark()
            passes.note(module, inputs, named)
            siblings.modules.append(module)
            siblings.passes.append(passes)

    def _let_go(self, key: tuple) -> None:
        """Of what a module that has no siblings was given: something else was called after it."""
        siblings = self.found[key]
        if len(siblings.modules) <= 1:
            for given in siblings.given.values():
                self._holds(given, -1)
            siblings.modules, siblings.passes, siblings.given = [], [], {}

    def _holds(self, given: "list[tuple[int, int]]", more: int) -> None:
        for one, size in given:
            before = self.held.get(one, 0)
            self.held[one] = before + more
            if not before or not before + more:
                self.bytes += more * size

    def _lines(self) -> "dict[tuple, list[Siblings]]":
        """Those that are alike, by their class and line."""
        lines: "dict[tuple, list[Siblings]]" = {}
        for (_, kind, line), siblings in self.found.items():
            if len(siblings.modules) >= _LEAST_MEMBERS and _are_alike(siblings):
                lines.setdefault((kind, line), []).append(siblings)
        return lines

    def rows(self, of_module) -> "list[tuple[dict, Siblings]]":
        """What is known of each loop over siblings that may be one call, the dearest first. `of_module` as for
        `InParts.rows`."""
        found = []
        for alike in self._lines().values():
            share, facts = _facts(alike, of_module)
            loop = self.loops.around(alike[0].stack) if share >= LEAST else None
            if loop is not None and not loop["carries"] and loop.get("of_layers"):
                found.append((share, {**facts, "loop": loop["header"]}, alike[0]))
        return dearest(found)

    def experts(self, of_module) -> "list[tuple[dict, list]]":
        """What is known of modules that are given the same rows at each line, and weak references to them, the dearest
        first."""
        found = []
        for alike in self._lines().values():
            alike = [siblings for siblings in alike if siblings.same_input]
            share, facts = _facts(alike, of_module) if alike else (0.0, {})
            if share >= LEAST:
                references = [weakref.ref(module) for siblings in alike for module in siblings.modules]
                found.append((share, facts, references))
        return dearest(found)


def _facts(alike: "list[Siblings]", of_module) -> "tuple[float, dict]":
    """Their part of the time in modules, and what is known of all of them."""
    of_all = [of_module(module) for siblings in alike for module in siblings.modules]
    spent = sum(one["milliseconds"] for one, _ in of_all)
    facts = {**of_all[0][0], "milliseconds": spent, "members": len(alike[0].modules)}
    return sum(one for _, one in of_all), facts


def _are_alike(siblings: Siblings) -> bool:
    """Whether all have parameters of the same names and shapes, and were called with tensors of the same shapes."""
    shapes = {tuple((name, tuple(one.shape)) for name, one in module.named_parameters()) for module in siblings.modules}
    keys = {key[1:] for passes in siblings.passes for key in passes.calls}
    return len(shapes) == 1 and len(keys) == 1
