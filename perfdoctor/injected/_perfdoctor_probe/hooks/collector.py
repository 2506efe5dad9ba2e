"""Garbage collections: how long, which generation, and who asked for them."""

import gc
import time

from .. import timeline as parts


class Pauses:
    """All collections of this process so far, nanoseconds."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0


class Collector:
    """A `gc.callbacks` entry and a wrapper of `gc.collect`."""

    def __init__(self, recorder, loop, sites, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.here = guarded("gc.collect", sites.here)
        self.pauses = Pauses()
        self.muted = False
        """Whether explicit collections are left out: a remedy."""
        self.reset()

    def reset(self) -> None:
        self.counts = [0, 0, 0]
        self.began = 0
        self.timed = False
        self.site = -1
        self.beat_count = 0
        self.beat_ns = 0

    def callback(self, phase: str, info: dict) -> None:
        """Called by the interpreter before and after each collection, on whichever thread triggered it."""
        if phase == "start":
            self.timed = self.loop.on_training_thread()
            if self.timed:
                self.loop.timeline.enter(parts.GC)
            self.began = time.perf_counter_ns()
            return
        took = time.perf_counter_ns() - self.began
        generation = info["generation"]
        self.counts[generation] += 1
        self.beat_count += 1
        self.beat_ns += took
        self.pauses.ns += took
        if self.timed:
            self.loop.timeline.leave(parts.GC)
        if generation == 2 or self.site >= 0:
            event = {"generation": generation, "collected": info["collected"], "site": self.site}
            self.recorder.record("full_gc", step=self.loop.timeline.step, us=took // 1000, **event)

    def explicit(self, original):
        """A stand-in for `gc.collect` that notes the line which calls it."""
        self.original = original

        def collect(*args, **kwargs):
            if self.muted:
                return 0
            site = self.here()
            self.site = -1 if site is None else site
            try:
                return original(*args, **kwargs)
            finally:
                self.site = -1

        collect.__doc__ = original.__doc__
        collect.__name__ = collect.__qualname__ = "collect"
        collect.__module__ = "gc"
        return collect

    def start_afresh(self) -> None:
        """A full collection that nobody sees: both sides of a gate count their collections from here.

        Where the job has switched the collector off, garbage stays as it is there.
        """
        if not gc.isenabled():
            return
        callbacks, gc.callbacks[:] = gc.callbacks[:], []
        try:
            self.original()
        finally:
            gc.callbacks[:] = callbacks

    def flush(self) -> None:
        """Queue what has been counted since the last call."""
        if any(self.counts):
            self.recorder.record("gc", step=self.loop.timeline.step, counts=self.counts)
            self.counts = [0, 0, 0]
