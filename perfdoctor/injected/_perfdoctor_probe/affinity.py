"""CPUs that this process may run on, and who said so. Used before torch is imported, so only what Python has is."""

import os
import sys
from _thread import get_ident

PLACES: "dict[int, tuple]" = {}
"""By thread, the place that was the last to choose CPUs for it: file, line, function, and None."""


def cpus() -> "list[int]":
    """Their numbers; all CPUs where the system has no affinity (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def watch() -> None:
    """Note from now on where a thread chooses CPUs for itself, which threads that it starts inherit."""
    original = getattr(os, "sched_setaffinity", None)
    if original is None:
        return

    def sched_setaffinity(pid, mask, /):
        original(pid, mask)
        if pid == 0:
            caller = sys._getframe(1)
            PLACES[get_ident()] = caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name, None

    for name in ("__doc__", "__module__", "__qualname__", "__text_signature__"):
        setattr(sched_setaffinity, name, getattr(original, name, None))
    os.sched_setaffinity = sched_setaffinity
