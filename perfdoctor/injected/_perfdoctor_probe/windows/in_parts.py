"""Modules inside another one that a loop calls with one part of a batch, or of a sequence, after the other.

Where no iteration needs the one before, one call with all parts at once would do; what the parts take and what several
of them take at once is timed after the job's last step.
"""

import sys

from ..microbenchmarks.passes import PassMicrobenchmark
from .dearest import LEAST, dearest
from .loops import Loops

_CALLS = 3
"""In one call of the outermost module, from where on a module is called in parts."""


class _Called:
    """A module, where it is called, and with what."""

    def __init__(self, module, stack: list) -> None:
        self.module = module
        self.stack = stack
        self.passes = PassMicrobenchmark()


class InParts:
    """Told of each call of a module inside another one, while the operator window is open."""

    def __init__(self, sites) -> None:
        self.sites = sites
        self.loops = Loops(sites.stack(sys._getframe(1)))
        self.called: "dict[int, _Called]" = {}

    def enters(self, module, calls: int, around: list, inputs: tuple, frame) -> None:
        """`calls` of it, this one included, as long as the outermost module is called for the first time, else 0;
        `around`: modules that are being called. `frame`: of what calls the hooks, which has what is passed by name."""
        called = self.called.get(id(module))
        if called is None:
            if calls != _CALLS or any(id(one) in self.called for one, _ in around):
                return
            called = self.called[id(module)] = _Called(module, self.sites.stack(frame))
        called.passes.note(module, inputs, frame.f_locals.get("kwargs", {}))

    def rows(self, of_module) -> "list[tuple[dict, PassMicrobenchmark]]":
        """What is known of each that may be called at once, the dearest first, and what times it. `of_module` gives
        such facts, and which part of the time in modules it takes."""
        found = []
        for called in self.called.values():
            facts, share = of_module(called.module)
            if share < LEAST or len(called.passes.calls) != 1:
                continue
            loop = self.loops.around(called.stack)
            if loop is not None and not loop["carries"] and not loop.get("of_layers"):
                (one,) = called.passes.calls.values()
                one.count = 1  # which stands for all
                found.append((share, {**facts, "loop": loop["header"]}, called.passes))
        return dearest(found)
