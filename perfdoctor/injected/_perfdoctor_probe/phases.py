"""Phases of a job: stretches of its steps that are made by other lines, such as a pretraining and what follows it, a
teacher's training and a student's, or two models that are trained by turns, an epoch each.

Steps of one phase are alike, those of two are not. What is judged is the phase that takes longest; what the windows saw
of a shorter one before it counts no more.
"""

import sys

from .sites import callers
from .windows.afterwards import trains_afterwards
from .windows.planned import gone_round

_LEAST_STEPS = 8
"""In a row that end by the same lines, until it is a phase: a single one may be the last of an epoch."""
_LEAST_NS = 1_000_000_000
"""Of a phase: nobody looks at parts of a job that are over sooner, and windows would hardly fit in."""
_MOST_TURNS = 3
"""Of fewer steps than that, until the lines that end a step are taken for branches of one loop."""


class _Stretch:
    __slots__ = ("before", "began_ns", "first", "lines")

    def __init__(self, lines: tuple, before: int, first: int, began_ns: int) -> None:
        self.lines = lines
        self.before = before
        """The number of steps when the last one was seen that ends elsewhere: `first` is no earlier one."""
        self.first = first
        self.began_ns = began_ns


class Phases:
    """The phase under way, and those before it."""

    def __init__(self, recorder, loop, sites, loading, begin) -> None:
        """`begin`: called with the step from which on another phase is judged than before."""
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.loading = loading
        self.begin = begin
        self.reset()

    def reset(self) -> None:
        self.spent_ns: "dict[tuple, int]" = {}
        """By the lines of a phase, in the order in which they were first seen: what it took, without what is under
        way."""
        self.now = self.seen = None
        """The stretch under way, and the one that the last look saw, which is perhaps another."""
        self.step = self.turns = 0
        self.judged = ()
        """The lines of the phase that is judged."""
        self.were_judged: "set[tuple]" = set()
        """Of all that were: one that takes turns with a longer one is not judged once more."""
        self.decided = True
        """Whether it is known of the phase under way."""
        self.attentive = False
        """Whether each step is to be looked at now."""
        self.are_branches = False

    @property
    def first(self) -> int:
        """The first step of the stretch under way."""
        return self.now.first if self.now is not None else 0

    @property
    def is_judged(self) -> bool:
        """Whether the steps under way are of the phase that is judged."""
        return self.now is None or self.are_branches or self.now.lines == self.judged

    def look(self, step: int, now_ns: int) -> None:
        """Between two steps: some twenty times a second, and while it is `attentive` after each."""
        if self.are_branches or self.loop.kind != "optimizer":
            return
        before, self.step = self.step, step
        lines = tuple(callers(sys._getframe(1), self.sites.is_library))
        if self.now is None and self.seen is None:
            self.seen = _Stretch(lines, 0, 0, now_ns)
        elif lines != self.seen.lines:
            self._is_another(lines, before, step, now_ns)
        is_another, steps = self.now is None or self.seen.lines != self.now.lines, step - self.seen.first
        self.attentive = is_another and steps < _LEAST_STEPS
        if is_another and steps >= _LEAST_STEPS and now_ns - self.seen.began_ns >= _LEAST_NS:
            known = self._gone_round(step, self.seen)
            self._begin()
            if not self.decided:
                self._decide(step, now_ns, known)
        elif not self.decided:
            self._decide(step, now_ns)  # once it has taken longer: what its loops do not say they will not say later

    def _is_another(self, lines: tuple, before: int, step: int, now_ns: int) -> None:
        if self.attentive:
            self.turns += 1
        if self.now is not None and lines == self.now.lines:
            self.seen = self.now
        else:
            self.seen = _Stretch(lines, before, step - 1, now_ns)
        if self.turns >= _MOST_TURNS:
            self.are_branches, self.attentive = True, False
            if self.now is not None:
                self._record(0, number=0, judged=True)

    def _gone_round(self, step: int, stretch: _Stretch) -> "tuple[float, float] | None":
        """As the function of that name, where that agrees with when the stretch was seen to begin: loops around all of
        the phases do not. Its first step is known then."""
        known = gone_round(self.sites, step - stretch.first, self.loading)
        if known is None or not stretch.before <= step - known[0] <= stretch.first:
            return None
        stretch.first = step - known[0]
        return known

    def _begin(self) -> None:
        last, self.now = self.now, self.seen
        if last is not None:
            self.spent_ns[last.lines] += self.now.began_ns - last.began_ns
        self.spent_ns.setdefault(self.now.lines, 0)
        self.decided = self.now.lines in self.were_judged
        if last is not None:
            self._record(self.now.first)

    def _decide(self, step: int, now_ns: int, known: "tuple[float, float] | None" = None) -> None:
        now, took_ns = self.now, now_ns - self.now.began_ns
        before_ns = self.spent_ns[now.lines]
        longest_ns = max((ns for lines, ns in self.spent_ns.items() if lines != now.lines), default=0)
        if known is None and before_ns + took_ns <= longest_ns:
            return
        self.decided = True
        steps = 0
        if known is not None:
            done, rounds = known
            took_ns *= rounds / done
            steps = round((step - now.first) * rounds / done)
        is_first = not self.judged
        if before_ns + took_ns > longest_ns:
            self.judged = now.lines
            self.were_judged.add(now.lines)
        self._record(now.first, steps=steps, later=trains_afterwards(self.sites))
        if self.is_judged and not is_first:
            self.begin(step)

    def _record(self, first: int, **known) -> None:
        lines = self.now.lines
        told = {"number": list(self.spent_ns).index(lines), "judged": lines == self.judged, **known}
        self.recorder.record("phase", step=first, **told)
