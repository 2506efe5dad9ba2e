"""The profiler's own trace of the operator window, kept where `check --trace` asks for it, and what only the loop knows
of it: when steps began and ended, and each of their parts.

The profiler notes its times by the kernel's clock of the day, the timeline by CLOCK_MONOTONIC: the distance between the
two is noted with it.
"""

import os
import time
from _thread import get_native_id

from .. import records
from ..timeline import BACKWARD, FORWARD, LOSS, OPTIMIZER, OTHER
from .line_clock import PARTS

OWN = -1
"""What perfdoctor does between two steps: no part of either."""
_NAMES = {**PARTS, OWN: "perfdoctor"}
_MOST = 5000
"""Parts of one window that are kept, 60 bytes each: a step has a dozen, and ten more for each micro-batch."""


class Borders:
    """Where the loop passed from one part to another, ns; the `Timeline` tells of each."""

    def __init__(self) -> None:
        self.parts: "list[list[int]]" = []
        """[part, start, end], one after the other."""
        self.steps: "list[tuple[int, int, int]]" = []
        """(number, start, end)."""
        self.began = self.reached = 0
        """Of the step under way, and of the part; 0 before the first."""

    def crossed(self, part: int, now: int) -> None:
        """`part` ends now."""
        if self.began and now > self.reached:
            self.parts.append([part, self.reached, now])
        self.reached = now

    def step_ended(self, step: int, part: int, now: int) -> None:
        """The step ends now, and `part` of it."""
        if self.began:
            self.crossed(part, now)
            self.steps.append((step, self.began, now))
            self.began = now

    def step_begins(self, now: int) -> None:
        """What has passed since the last step ended was perfdoctor's."""
        self.crossed(OWN, now)
        self.began = self.reached = now

    def end_loss(self, part: int) -> None:
        """What ran since the last forward pass belongs to this part."""
        for row in reversed(self.parts):
            if row[0] == FORWARD:
                return
            if row[0] == LOSS:
                row[0] = part

    def was_update(self) -> None:
        """In the step that has just ended, what followed the backward pass without a part was the update."""
        for row in reversed(self.parts):
            if row[0] == BACKWARD:
                return
            if row[0] == OTHER:
                row[0] = OPTIMIZER

    def lasted(self, ns: int) -> None:
        """The part that has just ended began so long before it was entered, in the middle of the one before."""
        if len(self.parts) > 1:
            before, last = self.parts[-2:]
            before[2] = last[1] = max(before[1], last[1] - ns)


class KeptTrace:
    """From the window's first step to its last."""

    def __init__(self, process_file: str, loop) -> None:
        """`process_file`: of this process's records, beside which the trace goes."""
        self.path = records.trace_of(process_file)
        self.loop = loop
        self.line = None
        self.borders = Borders()

    def open(self) -> None:
        """Have the timeline tell of borders, which it does only where no hook takes a shortcut."""
        self.line = self.loop.timeline
        self.line.borders = self.borders
        self.loop.quick = 0

    def drop(self) -> None:
        """No more borders."""
        if self.line is not None:
            self.line.borders = None

    def close(self, profile, layers, quiet) -> dict:
        """Write the trace, with `quiet` around what logs; a record of what belongs to it. About 3 us per operator."""
        clock_ns = time.time_ns() - time.perf_counter_ns()
        try:
            with quiet:
                profile.kineto_results.save(self.path)
            os.chmod(self.path, 0o600)  # torch goes by the job's umask
            size = os.path.getsize(self.path)
        except Exception as error:
            return {"missing": f"torch could not write it: {type(error).__name__}: {error}"[:300]}
        if not size:
            return {"missing": "torch wrote nothing: is the disk full?"}
        steps = self.borders.steps
        inside = [row for row in self.borders.parts if steps and row[1] >= steps[0][1]]
        parts = [{"part": _NAMES[part], "start_ns": start, "end_ns": end} for part, start, end in inside[:_MOST]]
        return {
            "file": os.path.basename(self.path),
            "clock_ns": clock_ns,
            "thread": get_native_id(),
            "steps": [{"step": step, "start_ns": start, "end_ns": end} for step, start, end in steps],
            "parts": parts,
            "parts_left_out": len(inside) - len(parts),
            "layers": layers.named() if layers is not None else [],
        }
