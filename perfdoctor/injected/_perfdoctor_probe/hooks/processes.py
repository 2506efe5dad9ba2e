"""Processes that the loop starts in its steps, and programs that it asks: how long it stands in such calls.

A loader's workers are not among them: the loader tells of those.
"""

import functools
import multiprocessing.pool
import multiprocessing.process
import os
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor

from ..timeline import INPUT

STARTED = "process"
"""A process that goes on with this one's code, alone or in a pool: its start, and its pool's end."""
ASKED = "program"
"""Another program, and all that it takes."""
_CALLS = (
    (STARTED, multiprocessing.process.BaseProcess, ("start",)),
    (STARTED, multiprocessing.pool.Pool, ("__init__", "terminate", "join")),
    (STARTED, ProcessPoolExecutor, ("shutdown",)),
    (ASKED, subprocess, ("run",)),
    (ASKED, subprocess.Popen, ("__init__", "communicate", "wait")),
    (ASKED, os, ("system",)),
)
_clock = time.perf_counter_ns


class Processes:
    """Times the outermost of such calls, on the training thread."""

    def __init__(self, calls, loop, sites, guarded) -> None:
        self.calls = calls
        self.loop = loop
        self.sites = sites
        self.guarded = guarded
        self.reset()

    def reset(self) -> None:
        """At install, and in a forked child, which begins inside such a call of its parent's."""
        self.is_inside = False

    def install(self, changes) -> None:
        """Put the stand-ins in place."""
        for kind, owner, names in _CALLS:
            for name in names:
                changes.put(owner, name, self._timed(kind, getattr(owner, name)), "processes")

    def began(self) -> "tuple[int, int] | None":
        """Where the call is made, and when; None inside another one, in a loader, and on other threads."""
        if self.is_inside or not self.loop.on_training_thread() or INPUT in self.loop.timeline.stack:
            return None
        self.is_inside = True
        return self.sites.here(2), _clock()

    def ended(self, kind: str, call: "tuple[int, int] | None") -> None:
        """`call` is what `began` returned; None when it failed, or there is nothing to count."""
        if call is not None:
            self.is_inside = False
            site, began_ns = call
            self.calls.add(kind, site, _clock() - began_ns)

    def _timed(self, kind: str, original):
        began, ended = self.guarded(kind, self.began), self.guarded(kind, self.ended)

        @functools.wraps(original)
        def call(*args, **kwargs):
            token = began()
            try:
                return original(*args, **kwargs)
            finally:
                ended(kind, token)

        return call
