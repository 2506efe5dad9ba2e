"""Charges the time of one thread to the lines of the user's code: the innermost that leads to what runs.

Python tells of each line that is about to run and of each function that is entered or left; functions of libraries are
not followed, so that what they take is the time of the line that called them. Costs about a microsecond for each line,
and a fifth of that for each call inside a library: for windows only.
"""

import sys
import time

from .. import timeline as parts
from ..rows import milliseconds, rounded

_KEPT = 60
"""Lines kept, the largest by time."""
PARTS = {
    parts.OTHER: "other",
    parts.INPUT: "input_wait",
    parts.FORWARD: "forward",
    parts.LOSS: "forward",
    parts.BACKWARD: "backward",
    parts.OPTIMIZER: "optimizer",
    parts.CHECKPOINT: "checkpoint",
    parts.GC: "gc",
    parts.COMMUNICATION: "communication",
    parts.LOGGING: "logging",
}
_clock = time.perf_counter_ns


class LineClock:
    """Runs from `begin` to `end`, on the thread of both."""

    def __init__(self, sites, loop) -> None:
        self.sites = sites
        self.loop = loop
        self.users: "dict[object, bool]" = {}
        self.spent: "dict[tuple, int]" = {}
        """Nanoseconds by line (code, number, in which part its function was entered, and if that was the wait for data
        the loader that was waited for, else -1) and part."""
        self.runs: "dict[tuple, int]" = {}
        """How often such a line began, by line."""
        self.asked: "dict[tuple, int]" = {}
        """How often such a line asked a process that keeps objects for others, by line."""
        self.asks = _code_that_asks()
        self.stack: list = []
        """Lines that wait for what they called."""
        self.current = None
        self.mark = 0
        self.live: list = []
        """The timeline's parts as they go on, and as they were at `mark`."""
        self.seen: list = []
        # One object each, to be known by identity.
        self.entered, self.moved = self._entered, self._moved

    def begin(self) -> None:
        """From here on, also in the functions that are running now."""
        frames = [frame for frame in _callers() if self._is_users(frame.f_code)]
        for frame in frames:
            frame.f_trace = self.moved
        # Entered before any part that is open now, or that opens later.
        self.stack = [(frame.f_code, frame.f_lineno, -1, -1) for frame in reversed(frames)]
        self.current = self.stack.pop() if self.stack else None
        self._mark()
        sys.settrace(self.entered)

    def end(self) -> None:
        """Not any more; if the job has begun to trace meanwhile, that goes on."""
        if sys.gettrace() is self.entered:
            sys.settrace(None)
        # If the step has ended meanwhile, nothing has run since then but our own work.
        line = self.loop.timeline
        self._charge(_clock() if line.spent is self.live else line.boundary_ns)
        for frame in _callers():
            if frame.f_trace is self.moved:
                frame.f_trace = None

    def summary(self, steps: int) -> dict:
        """Lines with their time per step, the largest first. `called`: their function was entered inside the part."""
        found: "dict[tuple, int]" = {}
        runs: "dict[tuple, int]" = {}
        asked: "dict[tuple, int]" = {}
        totals: "dict[str, int]" = {}
        waits: "dict[tuple, dict[int, int]]" = {}
        for (place, part), ns in self.spent.items():
            code, line, inside, loader = place
            name = PARTS[part]
            key = (code, line, name, inside >= 0 and PARTS[inside] == name)
            found[key] = found.get(key, 0) + ns
            runs[key] = runs.get(key, 0) + self.runs.get(place, 0)
            asked[key] = asked.get(key, 0) + self.asked.get(place, 0)
            totals[name] = totals.get(name, 0) + ns
            if loader >= 0 and key[-1]:
                of_line = waits.setdefault(key, {})
                of_line[loader] = of_line.get(loader, 0) + ns
        largest = sorted(found.items(), key=lambda item: -item[1])[:_KEPT]
        lines = [
            {
                "site": self.sites.at(code, line),
                "part": part,
                "called": called,
                "ms_per_step": milliseconds(ns, steps),
                "share": rounded(ns / totals[part]),
                "runs_per_step": rounded(runs[code, line, part, called] / steps),
                "asked_per_step": rounded(asked[code, line, part, called] / steps),
                "loaders": [
                    [loader, rounded(some / ns)] for loader, some in waits.get((code, line, part, called), {}).items()
                ],
            }
            for (code, line, part, called), ns in largest
            if ns and self.is_plain((code, line), ns)
        ]
        return {"lines": lines, "total_ms": milliseconds(sum(totals.values()), steps)}

    def is_plain(self, line: tuple, ns: int) -> bool:
        """Whether a line (code, number) of so much time is to be told."""
        return True

    # -- what Python tells --------------------------------------------------------------------------------

    def _is_users(self, code) -> bool:
        known = self.users.get(code)
        if known is None:
            known = self.users[code] = not self.sites.is_library(code.co_filename)
        return known

    def _entered(self, frame, event, arg):
        if not self._is_users(frame.f_code):
            if frame.f_code is self.asks and self.current is not None:
                self.asked[self.current] = self.asked.get(self.current, 0) + 1
            return None
        self._charge(_clock())
        self.stack.append(self.current)
        inside = self.loop.timeline.stack[-1]
        self.current = (frame.f_code, frame.f_lineno, inside, awaited(self.loop))
        self._mark()
        return self.moved

    def _moved(self, frame, event, arg):
        if event == "exception":
            return self.moved
        self._charge(_clock())
        if event == "line":
            entered = self.current[2:] if self.current is not None else (-1, -1)
            self.current = (frame.f_code, frame.f_lineno, *entered)
            self.runs[self.current] = self.runs.get(self.current, 0) + 1
        else:
            self.current = self.stack.pop() if self.stack else None
        self._mark()
        return self.moved

    def _mark(self) -> None:
        # Last of all, so that what we take is nobody's.
        line = self.loop.timeline
        self.live = line.spent
        self.seen = seen = line.spent[:]
        self.mark = now = _clock()
        seen[line.stack[-1]] += now - line.mark

    def _charge(self, now: int) -> None:
        if self.current is None:
            return
        line, spent = self.loop.timeline, self.spent
        top = line.stack[-1]
        if line.mark <= self.mark:  # the same part all along
            key = (self.current, top)
            spent[key] = spent.get(key, 0) + now - self.mark
            return
        after = line.spent[:]
        after[top] += now - line.mark
        if line.spent is self.live:
            took = _passed(self.seen, after)
        else:  # a step has ended meanwhile, and the next one counts from zero
            took = [one + other for one, other in zip(_passed(self.seen, self.live), after)]
        for part, ns in enumerate(took):
            if ns > 0:
                key = (self.current, part)
                spent[key] = spent.get(key, 0) + min(ns, now - self.mark)


def awaited(loop) -> int:
    """The loader that the loop waits for now, by its number; -1 while it waits for none."""
    drawing = loop.drawing if loop.timeline.stack[-1] == parts.INPUT else None
    return -1 if drawing is None else drawing[0]


def _code_that_asks():
    """Of the method by which proxies of `multiprocessing.managers` ask for anything; None where there are none."""
    managers = sys.modules.get("multiprocessing.managers")
    return None if managers is None else managers.BaseProxy._callmethod.__code__


def _passed(before: "list[int]", after: "list[int]") -> "list[int]":
    """Time by part. What was the loss so far has become a part of the forward pass, or of none."""
    passed = [max(0, until - since) for since, until in zip(before, after)]
    loss = after[parts.LOSS] - before[parts.LOSS]
    passed[parts.FORWARD] = max(0, after[parts.FORWARD] - before[parts.FORWARD] + min(0, loss))
    return passed


def _callers():
    """Frames of this thread, the innermost first, from the caller's caller on."""
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back
