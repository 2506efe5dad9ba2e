"""Taking turns with another copy of the job: run some steps, say how long they took, wait for the next turn.

Loaded only when the launcher asks for it, for `perfdoctor gate`. The job stands in a read of the control socket
between its turns; that time belongs to no step. A launcher that goes away closes the socket, and the job leaves: it
ran for the comparison only.
"""

import gc
import os
import sys
import time
import types

import torch

from . import procfs

_AT_ONCE = 200
"""Files in one message: a socket takes 64 KiB or more."""


_WRITTEN_BY_TORCH = "_remote_module_"
"""Modules that torch before 2.9 writes into a directory of its own when it starts, named by chance."""


class Turns:
    """The slice of steps that runs now."""

    def __init__(self, control, windows, collector) -> None:
        self.control = control
        self.windows = windows
        self.collector = collector
        self.left = 0
        self.told_sources = False
        self._begin()

    def _begin(self) -> None:
        self.steps = self.wall_ns = self.min_ns = self.wait_ns = self.gc_ns = 0
        self.collections = [generation["collections"] for generation in gc.get_stats()]
        self.cpu_ns = time.process_time_ns()
        self.delay_ns = procfs.thread_delay_ns()
        usage = procfs.counters()
        self.switches, self.faults = usage["nivcsw"], usage["minflt"]

    def count(self, wall_ns: int, wait_ns: int, gc_ns: int) -> None:
        """A step of this slice has ended."""
        self.left -= 1
        self.steps += 1
        self.wall_ns += wall_ns
        self.wait_ns += wait_ns
        self.gc_ns += gc_ns
        self.min_ns = min(self.min_ns, wall_ns) if self.steps > 1 else wall_ns

    @property
    def is_over(self) -> bool:
        """Whether it is the other's turn."""
        return self.left <= 0

    def hold(self, step: int, obey) -> bool:
        """Report and wait to be let go. `obey` gets every other command; False when there will be no more turns."""
        if torch.cuda.is_initialized():
            began = time.perf_counter_ns()
            torch.cuda.synchronize()
            # The host only asked for these steps; the device did them. The shortest of them is not known then.
            self.wall_ns += time.perf_counter_ns() - began
            self.min_ns = self.wall_ns // max(1, self.steps)
        if not self.told_sources:
            self.told_sources = True
            self._tell_sources()
        held = time.perf_counter_ns()
        alive = self.control.tell(self._report(step))
        while alive:
            command = self.control.wait()
            if command is None:
                return False
            if command.get("do") == "go":
                if command.get("collect"):
                    self.collector.start_afresh()
                self.left = int(command["steps"])
                # A window that waits for time to pass since the first step must not count this.
                if self.windows.first_ns:
                    self.windows.first_ns += time.perf_counter_ns() - held
                self._begin()
                return True
            obey(command, step)
            if command.get("do") == "stop":
                return False
        return False

    def _report(self, step: int) -> dict:
        usage = procfs.counters()
        delay_ns = procfs.thread_delay_ns()
        collections = [g["collections"] - before for g, before in zip(gc.get_stats(), self.collections)]
        known = delay_ns is not None and self.delay_ns is not None
        return {
            "k": "turn",
            "step": step,
            "steps": self.steps,
            "wall_ns": self.wall_ns,
            "min_ns": self.min_ns,
            "wait_ns": self.wait_ns,
            "gc_ns": self.gc_ns,
            **{f"gen{number}": count for number, count in enumerate(collections)},
            "cpu_ns": time.process_time_ns() - self.cpu_ns,
            "delay_ns": delay_ns - self.delay_ns if known else -1,
            "switches": usage["nivcsw"] - self.switches,
            "faults": usage["minflt"] - self.faults,
            "rss_kb": usage["maxrss_kb"],
            "busy": int(self.windows.busy),
        }

    def _tell_sources(self) -> None:
        found = sources()
        for start in range(0, len(found), _AT_ONCE):
            self.control.tell({"k": "sources", "files": found[start : start + _AT_ONCE]})


def sources() -> "list[str]":
    """Files of the modules that belong to the job itself: neither installed, nor Python's, nor ours."""
    standard = os.path.dirname(os.__file__) + os.sep
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(_WRITTEN_BY_TORCH):
            continue
        file = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
        if not isinstance(file, str) or "site-packages" in file or "dist-packages" in file:
            continue
        path = os.path.abspath(file)
        if not path.startswith((standard, ours)):
            found.add(path)
    return sorted(found)
