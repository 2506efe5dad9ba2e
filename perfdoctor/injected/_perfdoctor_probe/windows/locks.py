"""Who waits for a lock of the job's own, and where another thread holds it meanwhile.

A lock tells nobody who waits for it. But a line that takes one says so in its source (`with self.lock:`,
`self.lock.acquire()`): a thread whose innermost frame stands there waits, if another thread stands between such a line
of its own and the end of what that guards, and both mean the same object. None of the job's code runs for it.
"""

import _thread
import ast
import threading

from .holdings import variables
from .named import attribute
from .source import parsed

LOCKS = (_thread.LockType, _thread.RLock, threading.Semaphore, threading.BoundedSemaphore)
"""Not a condition: who waits for it stands inside its `with` and does not hold it."""


class Locks:
    """The lines of the user's files that take a lock, and what they guard."""

    def __init__(self, is_library) -> None:
        self.is_library = is_library
        self.files: "dict[str, list]" = {}
        """First and last line that is guarded, the line that takes the lock, and the expression that names it."""

    def waiting(self, frames: dict) -> "list[tuple]":
        """Of threads by number and innermost frame: the number of each that waits, its code and line, the code and line
        of the thread that it waits for, and the lock's name."""
        found = []
        for ident, frame in frames.items():
            for _, _, taken, word in self._guarded(frame):
                lock = _value(word, frame) if taken == frame.f_lineno else None
                holder = self._holder(lock, ident, frames) if type(lock) in LOCKS else None
                if holder is not None:
                    found.append((ident, frame.f_code, taken, *holder, ast.unparse(word)))
        return found

    def _holder(self, lock, waiting: int, frames: dict) -> "tuple | None":
        for ident, frame in frames.items():
            while ident != waiting and frame is not None:
                for first, last, _, word in self._guarded(frame):
                    if first <= frame.f_lineno <= last and _value(word, frame) is lock:
                        return frame.f_code, frame.f_lineno
                frame = frame.f_back
        return None

    def _guarded(self, frame) -> list:
        file = frame.f_code.co_filename
        known = self.files.get(file)
        if known is None:
            known = self.files[file] = [] if self.is_library(file) else list(_regions(parsed(file)))
        return known


def _regions(tree):
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.With):
            for item in node.items:
                if _is_path(item.context_expr):
                    yield node.body[0].lineno, node.end_lineno, node.lineno, item.context_expr
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _by_hand(node)


def _by_hand(function):
    """From `lock.acquire()` to the last `lock.release()` of a function."""
    calls = [
        (node.func.attr, node.lineno, node.func.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_path(node.func.value)
    ]
    for name, line, word in calls:
        released = [at for other, at, lock in calls if other == "release" and ast.dump(lock) == ast.dump(word)]
        if name == "acquire" and released and max(released) > line:
            yield line + 1, max(released), line, word


def _is_path(node) -> bool:
    """`lock`, `self.lock`, `shared.state.lock`: nothing that has to be called."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _value(word, frame):
    """What a path leads to in a frame; None where it leads nowhere, and for a frame that somebody traces: its copy of
    the variables is written back."""
    if frame.f_trace is not None:
        return None
    names = []
    while isinstance(word, ast.Attribute):
        names.append(word.attr)
        word = word.value
    one = variables(frame, {word.id}).get(word.id)
    for name in reversed(names):
        one = attribute(one, name)
    return one
