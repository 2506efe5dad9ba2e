"""What each user line issued: operators, their time, the Python between them and the page faults.

Every operator is counted; of many in a step only every few have their line looked for, and the others go to the next
one's line.
"""

import os
import sys

import torch

from .. import procfs
from .. import timeline as parts
from ..rows import milliseconds, operator, rounded
from .line_clock import PARTS
from .loops import Loops

_WALKS = 2000
"""Stack walks (2 to 5 us each) until only every 3rd operator's is taken; as many again until every 7th, ..."""
_KEPT = 60
"""Lines kept, the largest by time."""
_LOOPED = 8
"""Runs of a line per step from which on the loop around it is looked for."""
_LONGEST_PAUSE_NS = 300_000
"""Between two operators of one line; a longer pause is a wait for something, not Python at work."""
_PARTS = {**PARTS, parts.GC: "other", parts.COMMUNICATION: "other"}
_MAKING = ("other", "input_wait")
"""Parts of a step in which the loop makes its batch."""
_SHAPES = 16
"""Of the tensors that a line makes: a loop over parameters has more, and makes no batch."""
_OPERATORS = 3
"""Told of each line, the longest."""
_AUTOGRAD = os.path.join("torch", "autograd", "__init__.py")


class _Line:
    """What one line issued in one part of the step."""

    __slots__ = (
        "by_operator",
        "calls",
        "derives",
        "faults",
        "ops",
        "passes",
        "pause_ns",
        "places",
        "shapes",
        "spent_ns",
        "stack",
        "walks",
    )

    def __init__(self) -> None:
        self.stack: list = []
        self.walks = 0
        """Times that it was found at the end of a walk of the stack."""
        self.ops = self.spent_ns = self.pause_ns = self.calls = self.faults = 0
        self.places: "dict[int, int]" = {}
        """In the line's bytecode, with the calls of each while every operator's line was looked for."""
        self.passes: set = set()
        """The backward passes in which it issued something: the updates before them, and their number."""
        self.derives = False
        """It asks for derivatives, which are no pass of the step's: they may be part of what one batch is for."""
        self.shapes: set = set()
        """Of the tensors that it made, where that may be a batch."""
        self.by_operator: dict = {}
        """Nanoseconds of those at which the stack was walked."""

    def runs(self) -> float:
        """How often it ran: as often as most of its places called something. `boards[i, 0, c]` picks three times in one
        place, and a place behind an `if` calls less often."""
        counted = sorted(filter(None, self.places.values()))
        if not counted:
            return self.calls / max(1, len(self.places))
        return self.calls * counted[(len(counted) - 1) // 2] / sum(counted)

    def operators(self) -> "list[dict]":
        """The longest of them."""
        of = sum(self.by_operator.values()) or 1
        longest = sorted(self.by_operator.items(), key=lambda item: -item[1])[:_OPERATORS]
        return [{"name": operator(func._schema.name), "share": rounded(ns / of)} for func, ns in longest]


def _derives(frame) -> bool:
    """Whether `torch.autograd.grad` asks for the pass that this frame waits for."""
    while frame is not None and not frame.f_code.co_filename.endswith(_AUTOGRAD):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "grad"


class IssuedByLine:
    """Of one window, by line and part of the step."""

    def __init__(self, sites, loop, thread: int) -> None:
        self.sites = sites
        self.loop = loop
        self.thread = thread
        self.lines: "dict[tuple[int, str], _Line]" = {}
        self.walks = 0
        self.stride = 1
        self.pending = [0, 0, 0]
        """Operators, their time and the pauses before them, since the last walk: they go to the next one's line."""
        self.page_faults = procfs.PageFaults()
        self.faults = self.page_faults.read()
        self.least_pause_ns = _LONGEST_PAUSE_NS
        self.last_call = None
        self.loops = Loops(sites.stack(sys._getframe(2), packages=True), sites.is_library)

    def note(self, func, took: int, pause: int, result) -> None:
        """An operator has run for `took` ns, `pause` ns after the one before; called by the mode that sees it."""
        pending = self.pending
        pending[0] += 1
        pending[1] += took
        pending[2] += pause if pause < _LONGEST_PAUSE_NS else _LONGEST_PAUSE_NS
        if pause < self.least_pause_ns:
            self.least_pause_ns = pause
        if pending[0] < self.stride:
            return
        self.walks += 1
        if not self.walks % _WALKS:
            self.stride = 2 * self.stride + 1
        site, place, via = self.sites.call(2, self.thread)
        key = (site, self.part())
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = _Line()
            line.derives = key[1] == "backward" and _derives(sys._getframe(2))
        line.walks += 1
        if not line.walks & (line.walks - 1):
            # Each time that twice as many have come: a solver asks for the first slope outside of its loop.
            line.stack = self.sites.stack(sys._getframe(2), packages=True)
        line.ops += pending[0]
        line.spent_ns += pending[1]
        line.by_operator[func] = line.by_operator.get(func, 0) + took
        line.pause_ns += pending[2]
        faults = self.page_faults.read()
        line.faults += faults - self.faults
        self.faults = faults
        if key[1] in _MAKING and len(line.shapes) < _SHAPES and isinstance(result, torch.Tensor):
            line.shapes.add(tuple(result.shape))
        if key[1] == "backward" and not line.derives:
            updates = self.loop.timeline.step, self.loop.optimizer_steps
            line.passes.add((updates, torch._C._current_graph_task_id()))
        if place is not None:
            # Operators of one library call follow each other without the line moving on.
            counts = via is None or place != self.last_call
            line.calls += pending[0] if counts else 0
            line.places[place[1]] = line.places.get(place[1], 0) + (counts and self.stride == 1)
        self.last_call = place
        pending[:] = (0, 0, 0)

    def part(self) -> str:
        """Of the step, as it goes on now."""
        if torch._C._current_graph_task_id() >= 0:
            return "backward"
        return _PARTS[self.loop.timeline.stack[-1]]

    def summary(self, steps: int) -> "list[dict]":
        """The lines, the largest by time first."""
        spent: "dict[str, int]" = {}
        ops: "dict[str, int]" = {}
        for (_, part), line in self.lines.items():
            spent[part] = spent.get(part, 0) + self._ns(line)
            ops[part] = ops.get(part, 0) + line.ops
        largest = sorted(self.lines.items(), key=lambda item: -self._ns(item[1]))[:_KEPT]
        return [
            {
                "site": site,
                "part": part,
                "ops_per_step": line.ops / steps,
                "ms_per_step": milliseconds(self._ns(line), steps),
                "ops_ms": milliseconds(line.spent_ns, steps),
                "share": rounded(self._ns(line) / spent[part]) if spent[part] else 0.0,
                "ops_share": rounded(line.ops / ops[part]) if ops[part] else 0.0,
                "runs_per_step": rounded(runs := line.runs() / steps),
                "loop": self._loop(line.stack) if runs >= _LOOPED else None,
                "passes_per_update": rounded(len(line.passes) / max(1, len({at for at, _ in line.passes}))),
                "faults_per_step": line.faults / steps,
                "shapes": [list(shape) for shape in line.shapes],
                "operators": line.operators(),
            }
            for (site, part), line in largest
            if site >= 0
        ]

    def _loop(self, stack: list) -> "dict | None":
        found = self.loops.around(stack)
        for place in ("body", "across_at"):
            if found is not None and place in found:
                found[place] = self.sites.number((*found[place], None))
        return found

    def _ns(self, line: _Line) -> int:
        """Operators and Python. The least pause of all is the timing of watching: it is left out."""
        return line.spent_ns + max(0, line.pause_ns - line.ops * self.least_pause_ns)
