"""How much of making a sample that differs each time comes before anything random is drawn, and is the same each time.

The user's functions that make it are traced line by line until a generator of random numbers has moved; then twice more
up to the line that moved it, where what all names hold is compared.
"""

import sys
import time

from ..rows import rounded
from ..windows.content import Content, NotComparableError

_DEEPEST = 4
"""Functions within each other that are traced: the data set's, what composes transforms, a transform, its helper."""
_MOST = 1_000
"""Lines, each of which costs a look at the generators (about 30 us): a loop over elements is not for this."""
_clock = time.perf_counter_ns


class _Run:
    """One sample that is asked for; `lines` to go through before names are looked at, None for until something is
    drawn."""

    def __init__(self, is_library, states, lines: "int | None" = None) -> None:
        self.is_library, self.states, self.most = is_library, states, lines
        self.start = states()
        self.stack: list = []
        """Frames, and the line that each is at."""
        self.by_line: "dict[tuple, int]" = {}
        """Nanoseconds by depth, code and line, of all that came before the line that drew."""
        self.lines = self.before_ns = self.lost_ns = self.whole_ns = 0
        self.drew: "list[tuple]" = []
        """Code and line of the functions that led to what was drawn, the outermost first."""
        self.held: "list | None" = None
        self.bytes = 0

    def ask(self, dataset, index: int) -> "_Run":
        """For a sample."""
        self.mark = began = _clock()
        sys.settrace(self._called)
        try:
            dataset[index]
        finally:
            sys.settrace(None)
        self.whole_ns = _clock() - began - self.lost_ns
        return self

    def _called(self, frame, event, arg):
        if self.is_library(frame.f_code.co_filename) or len(self.stack) >= _DEEPEST:
            return None
        self._look()
        if sys.gettrace() is None:
            return None
        self.stack.append([frame, frame.f_lineno])
        return self._goes_on

    def _goes_on(self, frame, event, arg):
        if event in ("line", "return") and self.stack and self.stack[-1][0] is frame:
            self._look()
            if event == "return":
                self.stack.pop()
            elif not self.drew:
                self.stack[-1][1] = frame.f_lineno
                self._stop_there()
        return self._goes_on

    def _look(self) -> None:
        """What has gone by since the last look belongs to the lines under way, unless one of them has drawn."""
        began = _clock()
        if self.most is None and self.states() != self.start:
            self.drew = [(frame.f_code, line) for frame, line in self.stack]
            self._leave()
        else:
            spent = began - self.mark
            self.before_ns += spent
            for depth, (frame, line) in enumerate(self.stack):
                key = depth, frame.f_code, line
                self.by_line[key] = self.by_line.get(key, 0) + spent
        self.mark = _clock()
        self.lost_ns += self.mark - began

    def _stop_there(self) -> None:
        """At the last line that is to be gone through: what do all names hold?"""
        self.lines += 1
        if self.lines == self.most:
            began = _clock()
            self.held = [self._number(value) for frame, _ in self.stack for value in frame.f_locals.values()]
            self.lost_ns += _clock() - began
        if self.lines in (self.most, _MOST):
            self._leave()

    def _leave(self) -> None:
        sys.settrace(None)
        for frame, _ in self.stack:
            frame.f_trace = None

    def _number(self, value) -> bytes:
        if type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "tobytes"):
            value = value.mode, value.size, value.tobytes()
        try:
            content = Content()
            content.add(value)
        except NotComparableError:
            content = Content(of_arguments=True)
            content.add(value)
            return content.number
        self.bytes += content.bytes
        return content.number


def fixed_part(dataset, index: int, sites, states) -> "dict | None":
    """Its share of the time of a sample, the dearest line, what it holds in bytes, and the line that draws; None
    without one. `states`: gives those of all generators of random numbers that are known."""
    if sys.gettrace() is not None:
        return None
    first = _Run(sites.is_library, states).ask(dataset, index)
    if not first.drew or first.lines < 2:
        return None
    again = [_Run(sites.is_library, states, first.lines).ask(dataset, index) for _ in range(2)]
    if again[0].held is None or again[0].held != again[1].held:
        return None
    return {
        "share": rounded(min(1.0, first.before_ns / max(1, first.whole_ns))),
        "bytes": again[0].bytes,
        "at": sites.at(*_dearest(first)),
        "drawn_at": sites.at(*first.drew[-1]),
    }


def made_at(dataset, index: int, sites) -> int:
    """Of a sample that is the same each time: the dearest line of the data set itself, which may ask another data set,
    and then of that one; -1 where none is the user's."""
    if sys.gettrace() is not None:
        return -1
    run = _Run(sites.is_library, _nothing_is_drawn).ask(dataset, index)
    dearest = None
    for depth in range(_DEEPEST):
        inside = [key for key in run.by_line if key[0] == depth and (not depth or key[1].co_name == "__getitem__")]
        if not inside:
            break
        key = max(inside, key=run.by_line.__getitem__)
        if dearest is not None and 2 * run.by_line[key] <= run.by_line[dearest]:
            break
        dearest = key
    return -1 if dearest is None else sites.at(*dearest[1:])


def _nothing_is_drawn() -> None:
    """As far as whoever wants to know all lines is concerned."""


def _dearest(run: _Run) -> tuple:
    """The line that took most, in the outermost function; where that one led to what was drawn, the same in what it
    called."""
    code, line = run.drew[0]
    for depth in range(len(run.drew)):
        inside = [key for key in run.by_line if key[0] == depth]
        if not inside:
            break
        _, code, line = max(inside, key=run.by_line.__getitem__)
        if run.drew[depth] != (code, line):
            break
    return code, line
