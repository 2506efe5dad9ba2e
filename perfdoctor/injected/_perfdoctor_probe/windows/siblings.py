"""Modules of one class that a loop calls one after the other, none of which needs the one before: heads, members of an
ensemble.

One module that holds the weights of all could be called once; what that takes is timed after the job's last step.
"""

from ..microbenchmarks.passes import PassMicrobenchmark, tensors_in

_LEAST_MEMBERS = 4
_MOST_BYTES = 1 << 26
"""Of inputs that are held until the window closes, in all."""
_LEAST = 0.1
"""Of the time in modules: less is not worth the timing."""
_KEPT = 2
"""Loops, the dearest: each is timed for up to a second."""


class Siblings:
    """Modules that one module calls at one line, and with what, in their first calls."""

    def __init__(self, stack: list) -> None:
        self.stack = stack
        self.members: "list[tuple]" = []
        """Each module with its call."""
        self.given: set = set()
        """What they are given, by `id()`."""

    @property
    def same_input(self) -> bool:
        """Whether all are given the same tensors."""
        return len(self.given) == 1


class Families:
    """Told of the first call of each module inside another one, while the operator window is open."""

    def __init__(self, sites, loops) -> None:
        self.sites = sites
        self.loops = loops
        self.found: "dict[tuple, Siblings]" = {}
        self.bytes = 0

    def enters(self, module, line: int, around: list, inputs: tuple, frame) -> None:
        """`line`: of the user's that leads to the call. `around`, `inputs`, `frame` as for `InParts.enters`."""
        if not around or next(module.parameters(), None) is None:
            return
        named = frame.f_locals.get("kwargs", {})
        given = list(tensors_in((inputs, named)))
        key = (id(around[-1][0]), type(module), line)
        siblings = self.found.get(key)
        if siblings is None:
            siblings = self.found[key] = Siblings(self.sites.stack(frame))
        ids = tuple(map(id, given))
        if ids not in siblings.given:
            self.bytes += sum(one.numel() * one.element_size() for one in given)
        siblings.given.add(ids)
        if self.bytes <= _MOST_BYTES:
            passes = PassMicrobenchmark()
            passes.note(module, inputs, named)
            siblings.members.append((module, passes))

    def rows(self, of_module) -> "list[tuple[dict, Siblings]]":
        """What is known of each loop over siblings that may be one call, the dearest first. `of_module` as for
        `InParts.rows`."""
        lines: "dict[tuple, list[Siblings]]" = {}
        for (_, kind, line), siblings in self.found.items():
            if len(siblings.members) >= _LEAST_MEMBERS and _are_alike(siblings):
                lines.setdefault((kind, line), []).append(siblings)
        found = []
        for alike in lines.values():
            of_all = [of_module(module) for siblings in alike for module, _ in siblings.members]
            share = sum(one for _, one in of_all)
            loop = self.loops.around(alike[0].stack) if share >= _LEAST else None
            if loop is None or loop["carries"] or not loop.get("of_layers"):
                continue
            facts = {
                **of_all[0][0],
                "milliseconds": sum(one["milliseconds"] for one, _ in of_all),
                "members": len(alike[0].members),
                "loop": loop["header"],
            }
            found.append((share, facts, alike[0]))
        found.sort(key=lambda one: -one[0])
        return [(facts, siblings) for _, facts, siblings in found[:_KEPT]]


def _are_alike(siblings: Siblings) -> bool:
    """Whether all have parameters of the same names and shapes, and were called with tensors of the same shapes."""
    shapes = {
        tuple((name, tuple(one.shape)) for name, one in module.named_parameters()) for module, _ in siblings.members
    }
    keys = {key[1:] for _, passes in siblings.members for key in passes.calls}
    return len(shapes) == 1 and len(keys) == 1
