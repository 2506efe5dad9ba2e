"""Modules of one class that a loop calls one after the other, none of which needs the one before: heads, members of an
ensemble; and those that a module has for itself, as the gates of a cell, and gives the same.

One module that holds the weights of all could be called once; what that takes is timed after the job's last step. Of
experts that are given the same rows some may be needed for few of them: what they take on these is timed then too.
"""

import weakref

from ..microbenchmarks.inputs import tensors_in
from ..microbenchmarks.passes import PassMicrobenchmark
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
        self.differ = False
        """Gates that were given something else: they are none."""

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
        self.gates: "dict[int, dict[int, tuple]]" = {}
        """Of each module that calls others, by their `id()`, keys of those of its own that are as many alike."""
        self.alike: "dict[tuple, int]" = {}
        """In place of a line, by the class and shapes of such."""
        self.held: "dict[int, int]" = {}
        """How many siblings are given a tensor, by `id()`."""
        self.bytes = 0

    def enters(self, module, line: int, around: list, inputs: tuple, frame) -> None:
        """`line`: of the user's that leads to the call. `around`, `inputs`, `frame` as for `InParts.enters`."""
        if not around or next(module.parameters(), None) is None:
            return
        named, parent = frame.f_locals.get("kwargs", {}), around[-1][0]
        key = (id(parent), type(module), line)
        if self.latest.get(id(parent), key) != key:
            self._let_go(self.latest[id(parent)])
        self.latest[id(parent)] = key
        gate = self._gates(parent).get(id(module))
        for one in (key,) if gate is None else (key, gate):
            if one not in self.found:
                self.found[one] = Siblings(self.sites.stack(frame))
            self._joins(self.found[one], module, inputs, named, one is gate)

    def _gates(self, parent) -> "dict[int, tuple]":
        """Modules of its own, by `id()`, of which it has several with weights of the same shapes."""
        if id(parent) not in self.gates:
            groups: "dict[tuple, list[int]]" = {}
            for child in parent.children():
                shapes = tuple(tuple(one.shape) for one in child.parameters() if one.dim() > 1)
                kind = (type(child), shapes, len(list(child.parameters())))
                groups.setdefault(kind, []).append(id(child))
            keys = self.gates[id(parent)] = {}
            for (kind, shapes, count), members in groups.items():
                if shapes and len(members) >= _LEAST_MEMBERS:
                    number = self.alike.setdefault((kind, shapes), -1 - len(self.alike))
                    keys.update(dict.fromkeys(members, ((id(parent), count), kind, number)))
        return self.gates[id(parent)]

    def _joins(self, siblings: Siblings, module, inputs: tuple, named: dict, must_share: bool) -> None:
        """`must_share`: those that are given something else are none."""
        given = [(id(one), one.numel() * one.element_size()) for one in tensors_in((inputs, named))]
        ids = tuple(one for one, _ in given)
        if must_share and siblings.given and ids not in siblings.given:
            siblings.differ = True
            self._forget(siblings)
        if must_share and siblings.differ:
            return
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
            self._forget(siblings)

    def _forget(self, siblings: Siblings) -> None:
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
        """What is known of gates, and of each loop over siblings that may be one call, the dearest first.
        `of_module` as for `InParts.rows`."""
        found, looped = [], set()
        for (_, line), alike in sorted(self._lines().items(), key=lambda one: -one[0][1]):
            share, facts = _facts(alike, of_module)
            if line < 0 and share >= LEAST and id(alike[0].modules[0]) not in looped:
                found.append((share, {**facts, "loop": ""}, alike[0]))
            loop = self.loops.around(alike[0].stack) if line >= 0 and share >= LEAST else None
            if loop is not None and not loop["carries"] and loop.get("of_layers"):
                looped.update(id(module) for siblings in alike for module in siblings.modules)
                found.append((share, {**facts, "loop": loop["header"]}, alike[0]))
        return dearest(found)

    def experts(self, of_module) -> "list[tuple[dict, list]]":
        """What is known of modules that are given the same rows at each line, and weak references to them, the dearest
        first."""
        found = []
        for (_, line), alike in self._lines().items():
            alike = [siblings for siblings in alike if siblings.same_input and line >= 0]
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
