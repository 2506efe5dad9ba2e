"""Processes that the job starts, and messages to them: from which line, and how long the loop stands in such calls in
its steps.

A loader's workers are not among them: the loader tells of those. Nor is what a logger or a checkpoint runs.
"""

import functools
import sys
import time

import torch.utils.data._utils.worker as loader_worker

from ..timeline import CHECKPOINT, INPUT, LOGGING

STARTED = "process"
"""A process that goes on with this one's code, alone or in a pool: its start, and its pool's end."""
ASKED = "program"
"""Another program, and all that it takes."""
MESSAGE = "message"
"""To a process of its own, through a pipe, or from there with all of the wait; a manager's objects send them too."""
_CALLS = {
    ("multiprocessing.connection", "_ConnectionBase"): (MESSAGE, ("send", "recv", "poll")),
    ("multiprocessing.process", "BaseProcess"): (STARTED, ("start",)),
    ("multiprocessing.pool", "Pool"): (STARTED, ("__init__", "terminate", "join")),
    ("concurrent.futures.process", "ProcessPoolExecutor"): (STARTED, ("shutdown",)),
    ("subprocess", ""): (ASKED, ("run",)),
    ("subprocess", "Popen"): (ASKED, ("__init__", "communicate", "wait")),
    ("os", ""): (ASKED, ("system",)),
}
"""Module and class -> kind and functions. A job that uses a module has loaded it; none is loaded here."""
_STARTS = ("BaseProcess.start", "Popen.__init__")
"""Of these, the ones after which there is a process, whose number the object has."""
_MOST = 64
"""Processes whose start is told: a pool made in each step would go on."""
_TOLD_ELSEWHERE = {INPUT, CHECKPOINT, LOGGING}
"""Parts of the step that have checks of their own."""
_clock = time.perf_counter_ns


class Processes:
    """Times the outermost of such calls, on the training thread."""

    def __init__(self, calls, loop, sites, guarded) -> None:
        self.calls = calls
        self.loop = loop
        self.sites = sites
        self.guarded = guarded
        self.missing = set(_CALLS)
        self.reset()

    def reset(self) -> None:
        """At install, and in a forked child, which begins inside such a call of its parent's."""
        self.is_inside = False
        self.started = 0

    def watch(self, changes) -> None:
        """Put stand-ins in place of what has been loaded since the last time."""
        for owner in sorted(self.missing):
            module = sys.modules.get(owner[0])
            holder = getattr(module, owner[1], None) if owner[1] else module
            if holder is not None:
                self.missing.discard(owner)
                kind, names = _CALLS[owner]
                for name in names:
                    original = getattr(holder, name)
                    if f"{owner[1]}.{name}" in _STARTS:
                        original = self._told(original)
                    changes.put(holder, name, self._timed(kind, original), "processes")

    def began(self) -> "tuple[int, int] | None":
        """Where the call is made, and when; None inside another one, in parts that tell of it, and on other threads."""
        if self.is_inside or not self.loop.on_training_thread():
            return None
        if not _TOLD_ELSEWHERE.isdisjoint(self.loop.timeline.stack):
            return None
        self.is_inside = True
        return self.sites.here(2), _clock()

    def ended(self, kind: str, call: "tuple[int, int] | None") -> None:
        """`call` is what `began` returned; None when it failed, or there is nothing to count."""
        if call is not None:
            self.is_inside = False
            site, began_ns = call
            self.calls.add(kind, site, _clock() - began_ns)

    def begun(self, process, target) -> None:
        """It was started, on whatever thread, to call `target`."""
        if target is loader_worker._worker_loop or self.started >= _MOST:
            return
        self.started += 1
        does = self._does(target or getattr(type(process), "run", None))
        self.calls.recorder.record("started", pid=process.pid, site=self.sites.here(2), does=does)

    def _does(self, work) -> int:
        """The line of the first loop of a function; -1 without one, and for a library's."""
        while isinstance(work, functools.partial):
            work = work.func
        code = getattr(work, "__code__", None)
        if code is None or self.sites.is_library(code.co_filename):
            return -1
        from ..windows.source import first_loop

        return self.sites.at(code, first_loop(code))

    def _told(self, original):
        begun = self.guarded("processes", self.begun)

        @functools.wraps(original)
        def start(process, *args, **kwargs):
            target = getattr(process, "_target", None)  # it forgets that as it starts
            result = original(process, *args, **kwargs)
            begun(process, target)
            return result

        return start

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
