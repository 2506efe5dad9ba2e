"""The window of what lies between two steps: a step before which a loop evaluates, or makes something anew, once. As in
`repeats`, operators that compute again what they have computed in it, and those that others could stand for; of those
alone that record no graph: the others are the step's own."""

import torch

from .repeats import Repeats, RepeatsWindow


class Between(Repeats):
    """Of one step, in which nothing was there before."""

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
