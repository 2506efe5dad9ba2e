"""Python's garbage collector."""

import gc

from .base import Remedy, Switch, UnsuitableError


class NoExplicit(Switch):
    """Calls of `gc.collect` return 0 at once. Those that were imported by name are reached too, because the
    probe's stand-in asks at each call."""

    def read(self) -> bool:
        return self.probe.collector.muted

    def set(self, value: bool) -> None:
        self.probe.collector.muted = value

    def wanted(self) -> bool:
        return True


class Thresholds(Switch):
    """Collections set off by allocations."""

    def read(self) -> tuple:
        return gc.get_threshold()

    def set(self, value: tuple) -> None:
        gc.set_threshold(*value)

    def wanted(self) -> tuple:
        return (50_000, 50, 100)


class Freeze(Remedy):
    """All objects of now are moved to where the collector does not look."""

    frozen = False

    def apply(self) -> None:
        if gc.get_freeze_count():
            raise UnsuitableError("the job has frozen objects itself, which could not be told from ours afterwards")
        gc.freeze()
        self.frozen = True

    def withdraw(self) -> None:
        if self.frozen:
            gc.unfreeze()
            self.frozen = False
