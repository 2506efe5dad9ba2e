"""What every remedy is."""

import gc

from ..changes import Changes


class UnsuitableError(Exception):
    """The remedy cannot be applied to this job; says why, for the report."""


class Remedy:
    """One change. `apply` and `withdraw` run on the training thread between two steps; `withdraw` leaves the job as
    `apply` found it, also when `apply` raised half-way."""

    settle = 2
    """Steps after a switch that tell nothing yet: caches, allocators and queues still change."""
    drains = 0
    """Steps after `withdraw` in which the job still holds what the change gave it: `drain` is called in them."""
    work = 1.0
    """Samples of a step, by those it had before."""
    needs: "tuple[str, ...]" = ()
    """Parts of the probe, by their names in `patches`, without which it does not work."""

    def __init__(self, probe, value: "int | None" = None) -> None:
        self.probe = probe
        self.value = value
        self.changes = Changes()

    def apply(self) -> None:
        """Make the change. Raises `UnsuitableError` where it makes no sense."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Take it back."""
        self.changes.take_back()

    def at_step(self) -> None:
        """What the change does itself after each step while it is in place."""

    def drain(self) -> None:
        """Take back what the job has let go of. Called at the start of each root forward and backward pass."""

    def lost(self) -> str:
        """Why the steps since `apply` ran without the change after all; "" where they did not."""
        return ""


class Nothing(Remedy):
    """The change that is none: a trial of it shows what trials claim by chance."""

    def apply(self) -> None:
        pass


class Switch(Remedy):
    """A setting with something to read it and something to set it."""

    wanted: object = True
    """What it is to be."""

    def read(self):
        """What it is now."""
        raise NotImplementedError

    def set(self, value) -> None:
        """Make it so."""
        raise NotImplementedError

    def apply(self) -> None:
        self.before = self.read()
        if self.before == self.wanted:
            raise UnsuitableError("already set")
        self.set(self.wanted)

    def withdraw(self) -> None:
        if hasattr(self, "before"):
            self.set(self.before)


def living(kinds) -> list:
    """All objects of these classes or classes derived from them. Takes 10 ms per 100,000 objects."""
    # By type(): isinstance() wakes objects that warn when they are looked at.
    kinds = tuple(kinds)
    return [item for item in gc.get_objects() if issubclass(type(item), kinds)]
