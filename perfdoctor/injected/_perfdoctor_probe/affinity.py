"""CPUs that this process may run on. Used before torch is imported, so only `os` is."""

import os


def cpus() -> "list[int]":
    """Their numbers; all CPUs where the system has no affinity (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
