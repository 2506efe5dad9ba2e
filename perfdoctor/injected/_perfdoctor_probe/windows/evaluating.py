"""The evaluation window: what is done with one batch of an evaluation after its forward pass, line by line."""

import sys

from .line_clock import LineClock
from .lines import LinesWindow

LIMIT_NS = 2_000_000_000
"""What follows the last batch is timed up to the end of the step or of the job: texts that are scored in Python would
take several times as long."""


class EvaluationWindow(LinesWindow):
    """Opened in the middle of a step; timing ends with the next forward pass, or with the step."""

    steps = 1
    within_a_step = True

    def __init__(self, sites, loop, compiled: bool) -> None:
        super().__init__(sites, loop, compiled, "evaluation")
        self.clock = _BriefClock(sites, loop)
        self.times = False

    def open(self) -> None:
        super().open()
        self.times = True

    def is_gone(self) -> bool:
        return self.times and not self.clock.is_over and super().is_gone()

    def abandon(self) -> None:
        """Trace no more; may be called again."""
        if self.times:
            self.times = False
            super().abandon()


class _BriefClock(LineClock):
    """Stops by itself after some time."""

    is_over = False
    until = sys.maxsize

    def begin(self) -> None:
        super().begin()
        self.until = self.mark + LIMIT_NS

    def _mark(self) -> None:
        super()._mark()
        if self.mark > self.until:
            sys.settrace(None)
            self.current, self.is_over = None, True
