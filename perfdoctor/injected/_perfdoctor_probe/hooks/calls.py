"""Functions that are worth counting by call site: `torch.save`, `empty_cache`, what prints and logs."""

import functools
import time

from ..timeline import LOGGING


class Calls:
    """Counts and times calls by (kind, site) until the next flush."""

    def __init__(self, recorder, loop, sites, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.guarded = guarded
        self.muted: "set[str]" = set()
        """Kinds whose calls do nothing: a remedy."""
        self.reset()

    def reset(self) -> None:
        self.totals: "dict[tuple[str, int], list[int]]" = {}

    def began(self, part) -> "tuple[bool, int, int]":
        """Whether the call is timed, where it is made, and when."""
        timed = part is not None and self.loop.on_training_thread()
        site = self.sites.here(2)
        if timed:
            self.loop.timeline.enter(part)
        return timed, site, time.perf_counter_ns()

    def began_in_loop(self, part) -> "tuple[bool, int, int] | None":
        """The same on the training thread, of the outermost of such calls; None of others."""
        if self.loop.on_training_thread() and self.loop.timeline.stack[-1] != LOGGING:
            return self.began(part)
        return None

    def ended(self, kind: str, part, call: "tuple[bool, int, int] | None") -> None:
        """`call` is what `began` returned; None when it failed."""
        if call is None:
            return
        timed, site, began_ns = call
        if timed:
            self.loop.timeline.leave(part)
        total = self.totals.setdefault((kind, site), [0, 0])
        total[0] += 1
        total[1] += time.perf_counter_ns() - began_ns

    def wrap(self, kind: str, original, part=None, in_loop=False):
        """A stand-in for `original` that counts, `in_loop` on the training thread alone, and bills its time there to
        `part`."""
        began = self.guarded(kind, self.began_in_loop if in_loop else self.began)
        ended = self.guarded(kind, self.ended)

        @functools.wraps(original)
        def call(*args, **kwargs):
            if kind in self.muted:
                return None
            token = began(part)
            try:
                return original(*args, **kwargs)
            finally:
                ended(kind, part, token)

        return call

    def flush(self) -> None:
        """Queue what has been counted since the last call."""
        for (kind, site), (count, took_ns) in self.totals.items():
            step = self.loop.timeline.step
            self.recorder.record("call", kind=kind, site=site, count=count, us=took_ns // 1000, step=step)
        self.totals = {}
