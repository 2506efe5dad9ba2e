"""Calls of `np.random.choice` without replacement: NumPy's older generator shuffles all numbers to pick a few of them.

Its newer one draws as many as are asked for. Both ways are timed where a line is met first.
"""

import sys
import threading
import time

from ..changes import Changes
from ..rows import milliseconds
from .equivalents import row

_LEAST_NS = 50_000
"""A call that takes less is not worth another way."""
_TIMES = 2
"""The shortest of so many draws counts."""
_clock = time.perf_counter_ns


class Choices:
    """Of the steps from `open` to `close`."""

    def __init__(self, sites) -> None:
        self.sites = sites
        self.changes = Changes()
        self.thread = threading.get_ident()
        self.spent_ns: "dict[tuple, list[int]]" = {}
        """Of each call, by line, how many there are and how many are picked."""
        self.other_ns: "dict[tuple, int]" = {}

    def open(self) -> None:
        """Listen from here on, where the job has imported NumPy."""
        self.numpy = getattr(sys.modules.get("numpy"), "random", None)
        if self.numpy is None:
            return
        original = self.numpy.choice

        def choice(a, size=None, replace=True, p=None):
            began = _clock()
            result = original(a, size, replace, p)
            took = _clock() - began
            try:
                if not replace and p is None and took >= _LEAST_NS and threading.get_ident() == self.thread:
                    self._called(a, result, took)
            except Exception:  # what is picked from is of an exotic kind: this call is passed over
                pass
            return result

        self.changes.put(self.numpy, "choice", choice)

    def close(self) -> None:
        """Not any more."""
        self.changes.take_back()

    def _called(self, a, result, took: int) -> None:
        many = int(a) if getattr(a, "ndim", None) == 0 or isinstance(a, int) else len(a)
        key = (self.sites.here(2), many, getattr(result, "size", 1))
        self.spent_ns.setdefault(key, []).append(took)
        if key not in self.other_ns:
            self.other_ns[key] = self._otherwise(*key[1:])

    def _otherwise(self, many: int, count: int) -> int:
        generator = self.numpy.Generator(self.numpy.PCG64())
        found = []
        for _ in range(_TIMES):
            began = _clock()
            generator.choice(many, count, replace=False)
            found.append(_clock() - began)
        return min(found)

    def rows(self, steps: int) -> "list[dict]":
        """By line, per step of `steps`: as those of `Equivalents`. What is drawn more seldom is none of a step's."""
        found = []
        for key, spent in self.spent_ns.items():
            at, many, _ = key
            now_ms, other_ms = milliseconds(sum(spent), steps), milliseconds(len(spent) * self.other_ns[key], steps)
            if at >= 0 and len(spent) >= steps and other_ms < now_ms:
                found.append(row("chosen", at, len(spent) / steps, [many], (now_ms, 0.0), (other_ms, 0.0)))
        return found
