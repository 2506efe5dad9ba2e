"""The objects window, for `perfdoctor profile --memory`: what Python holds by type, before and after a few steps, and
what these steps have made and left, by line.

Python's own `tracemalloc` notes the line of every allocation in between, which makes a step up to several times as
long: that is why it is on for so few. Its C module is used, for a user may have a `pickle.py`.
"""

import _tracemalloc
import ctypes
import gc
import os
import sys

import torch

from .census import Census, tensor_bytes

_STEPS = 8
_FRAMES = 12
"""Of a stack that are noted: enough to come from a library to the line of the user's that called it."""
_TOLD = 20
"""Types, and lines."""
_MANAGED = 1 << 4
"""Flag of a type whose instances have their attributes in front of them ..."""
_IN_FRONT = 32
"""... and what lies in front of these then, with the collector's header. Python 3.11 looks for the latter alone."""
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class ObjectsWindow:
    """Opened at one step boundary, closed some steps later."""

    name = "objects"
    microbenchmark = final_microbenchmark = None
    steps = _STEPS

    def __init__(self, sites) -> None:
        self.sites = sites
        self.before: "Census | None" = None
        self.traces = False
        """Whether we have switched `tracemalloc` on; a job's own is left alone."""
        self.lines: "dict[tuple[str, int], list]" = {}
        """Objects, bytes, and how many there are of each type."""

    def obstacle(self) -> str:
        """Nothing keeps it from counting."""
        return ""

    def open(self) -> None:
        self.before = _undisturbed(Census)
        self.traces = not _tracemalloc.is_tracing()
        if self.traces:
            _tracemalloc.start(_FRAMES)

    def closable(self) -> bool:
        """Nothing of it depends on where the thread is."""
        return True

    def is_gone(self) -> bool:
        """Never: it is the process's."""
        return False

    def abandon(self) -> None:
        """Note no more lines."""
        if self.traces:
            _tracemalloc.stop()
            self.traces = False
        self.before = None

    def close(self, steps: int) -> dict:
        """The difference, by type and by line."""
        by_line, before = self.traces, self.before
        if by_line:
            _undisturbed(self._look)
        # Tracing would have every number that the census counts with noted too: it took 30 times as long.
        self.abandon()
        after = _undisturbed(lambda: Census(besides=before))
        return {
            "steps": steps,
            "is_cut": before.is_cut or after.is_cut,
            "types": _types(before, after),
            "lines": self._told(),
            "by_line": by_line,
        }

    def _look(self) -> None:
        """What there is that these steps have made, by line."""
        traced = _reader()
        made = [(one, frames) for one in gc.get_objects() if (frames := traced(one)) is not None]
        for _, size, frames, *_ in _tracemalloc._get_traces():
            line = self._line(frames)
            if line is not None:
                self._of(line)[1] += size
        known = set(self.before.data)
        for one, frames in made:
            line = self._line(frames)
            if line is not None:
                row = self._of(line)
                kind = type(one)
                row[0] += 1
                row[1] += tensor_bytes(one, known) if issubclass(kind, torch.Tensor) else 0
                row[2][kind] = row[2].get(kind, 0) + 1

    def _of(self, line: "tuple[str, int]") -> list:
        row = self.lines.get(line)
        if row is None:
            row = self.lines[line] = [0, 0, {}]
        return row

    def _line(self, frames) -> "tuple[str, int] | None":
        """The innermost of the user's; None without one, and where we have made it ourselves."""
        if frames[0][0].startswith(_HERE):
            return None
        return next((frame for frame in frames if not self.sites.is_library(frame[0])), None)

    def _told(self) -> "list[dict]":
        largest = sorted(self.lines.items(), key=lambda item: -item[1][1])[:_TOLD]
        return [
            {
                "site": self.sites.number((file, line, "", None)),
                "count": count,
                "bytes": size,
                "type": _name(max(kinds, key=kinds.get)) if kinds else "",
            }
            for (file, line), (count, size, kinds) in largest
        ]


def _reader():
    """What tells the stack that an object was made on; None for one that was made before."""
    read = _tracemalloc._get_object_traceback
    if sys.version_info[:2] != (3, 11):
        return read
    at = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    at.restype, at.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    flags = type.__dict__["__flags__"].__get__

    def read_managed(one):
        return at(0, id(one) - _IN_FRONT) if flags(type(one)) & _MANAGED else read(one)

    return read_managed


def _undisturbed(take):
    """What is made here is freed here: it may not set off a collection of the job's garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return take()
    finally:
        if collects:
            gc.enable()


def _types(before: Census, after: Census) -> "list[dict]":
    """Those that have most, and those that have grown most."""
    nothing = [0, 0, 0]
    rows = [
        {
            "name": _name(kind),
            "count": count,
            "bytes": size + data,
            "count_before": before.types.get(kind, nothing)[0],
            "bytes_before": sum(before.types.get(kind, nothing)[1:]),
        }
        for kind, (count, size, data) in after.types.items()
    ]
    largest = sorted(rows, key=lambda row: -row["bytes"])[:_TOLD]
    grown = sorted(rows, key=lambda row: row["bytes_before"] - row["bytes"])[:_TOLD]
    return largest + [row for row in grown if row["bytes"] > row["bytes_before"] and row not in largest]


def _name(kind: type) -> str:
    module, name = type.__dict__["__module__"].__get__(kind), type.__dict__["__qualname__"].__get__(kind)
    return str(name) if module == "builtins" else f"{module}.{name}"
