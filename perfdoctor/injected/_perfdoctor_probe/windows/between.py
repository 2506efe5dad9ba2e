"""The window of what lies between two steps: a step before which a loop evaluates, or makes something anew, once. As in
`repeats`, operators that compute again what they have computed in it, and those that others could stand for; of those
alone that record no graph: the others are the step's own."""

import time

import torch

from .epoch_starts import LONGEST_NS
from .repeats import Repeats, RepeatsWindow

_clock = time.perf_counter_ns


class Between(Repeats):
    """Of one step, in which nothing was there before; of a long one its beginning."""

    def __init__(self, sites, loop) -> None:
        super().__init__(sites, loop)
        self.aside = None  # what is done there is no training
        self.until_ns = _clock() + LONGEST_NS

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _clock() > self.until_ns:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _is_judged(self) -> bool:
        return not torch.is_grad_enabled() and super()._is_judged()

    def summary(self, steps: int) -> dict:
        """What is computed again, and what could be computed otherwise, per such step."""
        return self._judged(self.made, sum(self.spent_ns.values()), 1, 1)


class BetweenWindow(RepeatsWindow):
    """Opened at the border before such a step, closed after it."""

    name = "between"
    steps = 1
    may_close_early = True
    """Where the step starts processes: what it has seen is told all the same."""
    is_done = True
    """One is enough."""

    def open(self) -> None:
        self.enter(Between(self.sites, self.loop))

    def stays(self, steps: int) -> bool:
        """For one step."""
        return False

    def abandon(self) -> None:
        """Leave the mode."""
        self.watch.__exit__(None, None, None)

    def close(self, steps: int) -> dict:
        """Leave the mode; what was seen in the step."""
        self.abandon()
        watch, self.watch = self.watch, None
        return watch.summary(1)
