"""The line window: a step or two in which every line of the user's code is timed, with all that it calls."""

import sys

from .line_clock import LineClock


class LinesWindow:
    """Opened at one step boundary, closed at another."""

    microbenchmark = final_microbenchmark = None

    def __init__(self, sites, loop, compiled: bool, name: str = "lines") -> None:
        """`name`: `lines`, or `later` where it is opened once more."""
        self.name = name
        self.clock = LineClock(sites, loop)
        self.compiled = compiled

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        if self.compiled:
            return "the job uses torch.compile, which compiles nothing while lines are traced"
        if sys.gettrace() is not None:
            return "a debugger or a coverage tool traces the job's lines"
        return ""

    def open(self) -> None:
        self.clock.begin()

    def closable(self) -> bool:
        """Always: where the job has begun to trace by itself, `end` leaves that alone."""
        return True

    def is_gone(self) -> bool:
        """Whether it has ended with its thread, whose number this one has got."""
        return sys.gettrace() is None

    def abandon(self) -> None:
        """Trace no more."""
        self.clock.end()

    def close(self, steps: int) -> dict:
        """Trace no more; the lines of `steps` steps."""
        self.abandon()
        return self.clock.summary(steps)
