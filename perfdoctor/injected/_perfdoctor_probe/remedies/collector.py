"""Python's garbage collector."""

import gc

from .base import Remedy, Switch, UnsuitableError


class NoExplicit(Switch):
    """Calls of `gc.collect` return 0 at once. Those that were imported by name are reached too, because the
    probe's stand-in asks at each call."""

    needs = ("collector",)

    def read(self) -> bool:
        return self.probe.collector.muted

    def set(self, value: bool) -> None:
        self.probe.collector.muted = value


class Thresholds(Switch):
    """Collections set off by allocations."""

    wanted = (50_000, 50, 100)

    def read(self) -> tuple:
        return gc.get_threshold()

    def set(self, value: tuple) -> None:
        gc.set_threshold(*value)


class Every(Remedy):
    """No collections but ours, of the two younger generations: what is long-lived is not walked again and again."""

    needs = ("collector", "optimizer")
    steps = 0
    """With the remedy in place, over all its blocks: one collection may fall to many short blocks, and their mean must
    hold it as often as a job would."""

    def apply(self) -> None:
        collector = self.probe.collector
        self.before = gc.isenabled(), collector.muted
        gc.disable()
        collector.muted = True

    def at_step(self) -> None:
        Every.steps += 1
        if Every.steps % max(1, self.value) == 0:
            self.probe.collector.original(1)

    def withdraw(self) -> None:
        if hasattr(self, "before"):
            enabled, self.probe.collector.muted = self.before
            if enabled:
                gc.enable()


class Freeze(Remedy):
    """All objects of now are moved to where the collector does not look."""

    frozen = False

    def apply(self) -> None:
        if gc.get_freeze_count():
            raise UnsuitableError("objects are frozen already, by the job or Python 3.12, and not to be told from ours")
        gc.freeze()
        self.frozen = True

    def withdraw(self) -> None:
        if self.frozen:
            gc.unfreeze()
            self.frozen = False
