"""Threads that keep a CPU busy by asking again and again whether there is something to do.

By what they take of a CPU while somebody looks at them, and by where they stand: in a `while` loop that asks without
waiting (`queue.get_nowait()`, `event.is_set()`, `time.sleep(0)`), at a line that does nothing else.
"""

import ast
import threading
import time
from collections import Counter

from .. import procfs
from ..rows import rounded
from ..sites import users_frame
from .source import called, parsed

_ASKING = frozenset("get_nowait empty full qsize is_set poll done is_alive locked sleep time monotonic len".split())
"""Functions that say how things stand, and return at once; and `sleep`, which may take no time."""
_LEAST_CPUS = 0.05


class Polling:
    """Looks at threads from `begin` on."""

    def __init__(self, is_library) -> None:
        self.is_library = is_library
        self.files: "dict[str, set[int]]" = {}
        """Lines of loops that do nothing but ask."""
        self.cpu_ns: "dict[int, int]" = {}
        """Of each thread, by its number in the kernel, when it was looked at first."""
        self.looks: "Counter[int]" = Counter()
        self.asking: "dict[int, Counter]" = {}
        """Of each, looks by code and line."""
        self.began_ns = 0

    def begin(self) -> None:
        self.began_ns = time.perf_counter_ns()

    def look(self, frames: dict, lead: int) -> None:
        """Threads by their number in Python, with their innermost frames; `lead` is the loop's."""
        for ident, frame in frames.items():
            thread = threading._active.get(ident)
            native = getattr(thread, "native_id", None)
            if ident == lead or native is None:
                continue
            self.cpu_ns.setdefault(native, procfs.thread_cpu_ns(native))
            self.looks[native] += 1
            own = users_frame(frame, self.is_library)
            if own is not None and own.f_lineno in self._asking(own.f_code.co_filename):
                self.asking.setdefault(native, Counter())[own.f_code, own.f_lineno] += 1

    def rows(self, sites) -> "list[dict]":
        """The busiest first."""
        wall_ns = max(1, time.perf_counter_ns() - self.began_ns)
        found = []
        for native, lines in self.asking.items():
            cpus = (procfs.thread_cpu_ns(native) - self.cpu_ns[native]) / wall_ns
            if cpus >= _LEAST_CPUS:
                (code, line), _ = lines.most_common(1)[0]
                asks = sum(lines.values()) / self.looks[native]
                found.append({"site": sites.at(code, line), "cpus": rounded(cpus), "asks": rounded(asks)})
        return sorted(found, key=lambda row: -row["cpus"] * row["asks"])

    def _asking(self, file: str) -> "set[int]":
        known = self.files.get(file)
        if known is None:
            tree = parsed(file)
            loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)] if tree is not None else []
            known = self.files[file] = {line for loop in loops for line in _lines(loop)}
        return known


def _lines(loop) -> "set[int]":
    """Of a loop that asks, or that calls nothing at all: those that do nothing else."""
    calls = _calls(loop)
    if calls and not any(called(call) in _ASKING for call in calls):
        return set()
    found = set(range(loop.lineno, loop.test.end_lineno + 1)) if _only_asks(loop.test) else set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.Pass, ast.Continue, ast.Break, ast.Try, ast.ExceptHandler)):
            found.add(node.lineno)
        elif isinstance(node, ast.If) and _only_asks(node.test):
            found.update(range(node.lineno, node.test.end_lineno + 1))
        elif isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)) and _only_asks(node):
            found.update(range(node.lineno, node.end_lineno + 1))
    return found


def _only_asks(node) -> bool:
    return all(called(call) in _ASKING for call in _calls(node))


def _calls(node) -> list:
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]
