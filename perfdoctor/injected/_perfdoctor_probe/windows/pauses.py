"""Pauses of threads beside the loop, for which everybody waits: `time.sleep()`, and waits with a time limit
(`queue.get(timeout=0.01)`, `event.wait(0.1)`) whose time runs out.

While the window is open, `Condition.wait` notes who waits with a limit, where, and whether somebody has come: queues,
events, semaphores and futures wait by it. A thread that sleeps is told by the line at which it stands. Which of them
the loop waits for shows in looks at all threads: the loop waits, and nobody computes, but while this pause lasts.
Looks at a wait count once its time has run out: whoever collects requests may wait for each of them, and in vain for
the last.
"""

import ast
import sys
import threading
import time
from _thread import get_ident

from ..rows import milliseconds, rounded
from ..sites import users_frame
from .source import called, parsed
from .stacks import waits

_clock = time.perf_counter_ns


class Pauses:
    """Looks at threads from `begin` to `end`."""

    def __init__(self, is_library, home: int) -> None:
        """`home`: the loop's thread, whose own waits are told by its lines."""
        self.is_library = is_library
        self.home = home
        self.wait = self.ours = None
        self.under_way: "dict[int, tuple[tuple, dict[bool, int]]]" = {}
        """By thread: code and line of the user's, and looks at this wait."""
        self.ran_out: "dict[tuple, list[int]]" = {}
        """By code and line: waits whose time did, and nanoseconds."""
        self.files: "dict[str, set[int]]" = {}
        """Lines that sleep."""
        self.looks = {True: 0, False: 0}
        self.seen: "dict[bool, dict[tuple, int]]" = {True: {}, False: {}}
        """Looks at each pause, by whether everybody waits, or else the loop computes."""

    def begin(self) -> None:
        self.wait = original = threading.Condition.wait

        def wait(condition, timeout=None):
            place = self._place(sys._getframe(1)) if timeout is not None and get_ident() != self.home else None
            if place is None:
                return original(condition, timeout)
            began, looks = _clock(), {True: 0, False: 0}
            self.under_way[get_ident()] = place, looks
            try:
                came = original(condition, timeout)
            finally:
                self.under_way.pop(get_ident(), None)
            if not came:
                counts = self.ran_out.setdefault(place, [0, 0])
                counts[0] += 1
                counts[1] += _clock() - began
                for awaited, count in looks.items():
                    self._count(awaited, place, count)
            return came

        self.ours = threading.Condition.wait = wait

    def end(self) -> None:
        """The class is as it was, but where somebody else has changed it since."""
        if self.ours is not None and threading.Condition.wait is self.ours:
            threading.Condition.wait = self.wait

    def look(self, frames: dict, lead: int, idle: bool) -> None:
        """Threads by their number, with their innermost frames; `idle`: the `lead`, which is the loop's, waits."""
        others = {ident: frame for ident, frame in frames.items() if ident != lead}
        asleep = {ident: place for ident, frame in others.items() if (place := self._asleep(frame)) is not None}
        if idle and not all(ident in asleep or waits(frame) for ident, frame in others.items()):
            return
        self.looks[idle] += 1
        for place in set(asleep.values()):
            self._count(idle, place, 1)
        for ident in others:
            _, looks = self.under_way.get(ident, (None, {}))
            looks[idle] = looks.get(idle, 0) + 1

    def rows(self, sites, looks: int) -> "list[dict]":
        """Those that everybody was seen to wait for, most often first; `looks` at all threads."""
        found = []
        for place, count in self.seen[True].items():
            ran_out, ns = self.ran_out.get(place, (0, 0))
            found.append(
                {
                    "site": sites.at(*place),
                    "ran_out": ran_out,
                    "ms": milliseconds(ns, max(1, ran_out)),
                    "awaited": rounded(count / max(1, looks)),
                    "otherwise": rounded(self.seen[False].get(place, 0) / max(1, self.looks[False])),
                }
            )
        return sorted(found, key=lambda row: -row["awaited"])

    def _count(self, awaited: bool, place: tuple, looks: int) -> None:
        if looks:
            self.seen[awaited][place] = self.seen[awaited].get(place, 0) + looks

    def _place(self, frame) -> "tuple | None":
        own = users_frame(frame, self.is_library)
        return None if own is None else (own.f_code, own.f_lineno)

    def _asleep(self, frame) -> "tuple | None":
        """Of a thread whose innermost frame stands at a line of the user's that sleeps."""
        file = frame.f_code.co_filename
        if self.is_library(file):
            return None
        known = self.files.get(file)
        if known is None:
            tree = parsed(file)
            nodes = ast.walk(tree) if tree is not None else ()
            known = self.files[file] = {node.lineno for node in nodes if called(node) == "sleep"}
        return (frame.f_code, frame.f_lineno) if frame.f_lineno in known else None
