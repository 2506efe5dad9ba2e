"""The window of what lies between two steps: a step before which a loop evaluates, or makes something anew, once. As in
`repeats`, operators that compute again what they have computed in it, and those that others could stand for; of those
alone that record no graph: the others are the step's own. And lines of the user's code that issue hardly any."""

import sys
import time

import torch

from .by_line import by_line
from .epoch_starts import LONGEST_NS
from .line_clock import LineClock
from .parts_called import PartsCalled
from .repeats import Repeats, RepeatsWindow

_ISSUED = 0.1
"""Of a line's time, in operators and in watching them: from where on it computes on tensors."""
_RAN = 200
"""Lines that are told to have run."""
_clock = time.perf_counter_ns


class _Clock(LineClock):
    """Of one such step; of a long one its beginning."""

    def begin(self) -> None:
        self.until_ns = _clock() + LONGEST_NS
        self.issued: "dict[tuple, int]" = {}
        """Nanoseconds in operators, by line."""
        super().begin()

    def issues(self, ns: int) -> None:
        """The line that runs now."""
        if self.current is not None:
            line = self.current[:2]
            self.issued[line] = self.issued.get(line, 0) + ns

    def is_plain(self, line: tuple, ns: int) -> bool:
        """Whether it issues hardly any operators."""
        return self.issued.get(line, 0) < _ISSUED * ns

    def ran(self) -> "list[int]":
        """All lines, those that compute on tensors too."""
        places = dict.fromkeys((code, line) for (code, line, _, _), _ in self.spent)
        return [self.sites.at(code, line) for code, line in list(places)[:_RAN]]

    def _mark(self) -> None:
        super()._mark()
        if self.mark > self.until_ns and sys.gettrace() is self.entered:
            sys.settrace(None)
            self.current = None  # what is still to come is nobody's


class Between(Repeats):
    """Of one step, in which nothing was there before; of a long one its beginning."""

    def __init__(self, sites, loop, lines: "_Clock | None") -> None:
        super().__init__(sites, loop)
        self.aside = self.samples = self.growing = None  # what is done there is no training, and of one step
        self.lines = lines
        self.trains = False
        """An operator has recorded a graph: the step itself has begun, or an evaluation with gradients."""
        self.until_ns = _clock() + LONGEST_NS

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _clock() > self.until_ns:
            return func(*args, **(kwargs or {}))
        began = _clock()
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            if self.lines is not None:
                self.lines.issues(_clock() - began)

    def _is_judged(self, has_node: bool) -> bool:
        # A metric need not be computed without gradients, of scores that have none.
        self.trains = self.trains or has_node
        without_graph = not torch.is_grad_enabled() or not self.trains
        return without_graph and super()._is_judged(has_node)

    def summary(self, steps: int) -> dict:
        """What is computed again, and what could be computed otherwise, per such step."""
        return self._judged(self.made, by_line(self.made), sum(self.spent_ns.values()), 1, 1)


class BetweenWindow(RepeatsWindow):
    """Opened at the border before such a step, closed after it."""

    name = "between"
    steps = 1
    may_close_early = True
    """Where the step starts processes: what it has seen is told all the same."""
    is_done = True
    """One is enough."""

    def open(self) -> None:
        # A debugger or a coverage tool may trace the job's lines.
        self.lines = _Clock(self.sites, self.loop) if sys.gettrace() is None else None
        self.parts = PartsCalled(self.sites, self.loop)
        self.enter(Between(self.sites, self.loop, self.lines))
        self.parts.open()
        if self.lines is not None:
            self.lines.begin()

    def stays(self, steps: int) -> bool:
        """For one step."""
        return False

    def abandon(self) -> None:
        """Leave the mode, and trace no more."""
        if self.lines is not None:
            self.lines.end()
        self.watch.__exit__(None, None, None)
        self.parts.close()

    def close(self, steps: int) -> dict:
        """Leave the mode; what was seen in the step."""
        self.abandon()
        watch, self.watch = self.watch, None
        found = {**watch.summary(1), **self.parts.summary()}
        if self.lines is None:
            return {**found, "lines": [], "total_ms": 0.0, "ran": []}
        return {**found, **self.lines.summary(1), "ran": self.lines.ran()}
