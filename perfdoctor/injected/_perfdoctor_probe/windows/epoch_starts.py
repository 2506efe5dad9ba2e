"""The window of what an epoch begins with: the steps before which a loop makes its data anew, or evaluates, a few of
them. Calls of the user's own functions are followed as in `same_results`; those are told that return in one of these
steps what they have returned in another."""

import sys
import time

from .followed import Follower
from .same_results import SameResultsWindow, rows, totals

LONGEST_NS = 3_000_000_000
"""Of one start: Python that is listened to takes up to twice as long."""
_LOOKED_AT = 4096
"""Calls and returns after which the clock is looked at."""
_clock = time.perf_counter_ns
STARTS = 3
"""Looked at: two to compare, and one in which nobody listens."""


class _Follower(Follower):
    """Of more, and of larger things; an evaluation that goes on for long is followed for its beginning."""

    most_bytes, largest = 1 << 30, 1 << 28
    """In all 0.6 s: a whole data set may be among them."""
    different = 4096
    """An evaluation asks for all of its samples before it asks for one of them again."""
    events = 0
    is_over = False

    def begin(self) -> None:
        """From here on."""
        self.is_over = False
        super().begin()

    def _told(self, frame, event, arg) -> None:
        self.events += 1
        if self.events % _LOOKED_AT or _clock() - self.began_ns < LONGEST_NS:
            super()._told(frame, event, arg)
        else:
            sys.setprofile(None)
            self.is_over = True


class EpochStartsWindow(SameResultsWindow):
    """Opened at the border before each of these steps, closed after it; one for all of them."""

    name = "epochs"
    steps = 1
    may_close_early = True
    """Where the step starts processes: what it has seen is told all the same."""

    def __init__(self, sites, loop, compiled: bool) -> None:
        super().__init__(sites, loop, compiled)
        self.follower = _Follower(sites, loop)
        self.borders: "list[int]" = []
        """How many calls had been looked at as each step ended."""

    @property
    def is_done(self) -> bool:
        """Whether it has seen as many as it needs."""
        return len(self.borders) >= STARTS

    def stays(self, steps: int) -> bool:
        """For one step."""
        return False

    def is_gone(self) -> bool:
        """Whether it has ended with its thread."""
        return not self.follower.is_over and super().is_gone()

    def close(self, steps: int) -> dict:
        """Follow no more until the next one; the functions per step that was looked at."""
        self.abandon()
        self.borders.append(len(self.follower.calls))
        starts = len(self.borders)
        return {"starts": starts, **rows(self.follower, totals(self.follower), starts, self._again())}

    def _again(self) -> set:
        """Calls that came again in another of these steps."""
        calls, began = self.follower.calls, 0
        met: "dict[tuple, set[int]]" = {}
        for number, border in enumerate(self.borders):
            for call in calls[began:border]:
                met.setdefault((call.function, call.key), set()).add(number)
            began = border
        return {call for call in calls if len(met[call.function, call.key]) > 1}
