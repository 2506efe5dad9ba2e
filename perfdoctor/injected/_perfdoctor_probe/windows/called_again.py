"""Modules that a loop calls again and again, in a way that one call could stand for: what is known of each."""

from .dearest import LEAST


class CalledAgain:
    """Of the modules of a step. `kind`: what makes an entry of a module; its `is_found` says whether that is called so,
    and its `stack` where."""

    def __init__(self, sites, loops, kind) -> None:
        self.sites = sites
        self.loops = loops
        self.kind = kind
        self.called: dict = {}

    def entry(self, module, around: list):
        """Of a module that is called now inside of those around it, as for `InParts.enters`; None where one of these
        is what the loop calls."""
        outer = (self.called.get(id(one)) for one, _ in around)
        if any(one is not None and one.is_found for one in outer):
            return None
        known = self.called.get(id(module))
        if known is None:
            known = self.called[id(module)] = self.kind(module)
        return known

    def in_loop(self, one, of_module) -> "tuple[float, dict, dict | None]":
        """The part of the time in modules that it takes, facts, and the loop that calls it; without a loop where that
        is little, or is not known. `of_module` as for `InParts.rows`."""
        facts, share = of_module(one.module)
        loop = self.loops.around(one.stack) if share >= LEAST else None
        if loop is None:
            return share, facts, None
        return share, {**facts, "loop": loop["header"], "loop_line": loop["line"]}, loop
