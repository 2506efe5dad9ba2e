"""Who waited for a lock of the job's own."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Site


@dataclass(frozen=True, slots=True)
class LockWait:
    """A line at which threads waited for a lock while another thread held it."""

    site: Site
    held_at: Site
    """Where the other thread stood."""
    lock: str
    """As the line names it: `self.lock`."""
    by_loop: bool
    """The thread that waited is the training loop's."""
    threads: float
    """How many waited there, on average over the looks."""


@dataclass(frozen=True, slots=True)
class LockWaits:
    """Which threads waited for locks of the job's own, by a look every few milliseconds."""

    looks: int
    loop_waits: float
    """Share of the looks in which the loop's thread waited: for such a lock, a queue, another thread."""
    rows: tuple[LockWait, ...]
    """The most waited for first."""

    @property
    def waiting(self) -> float:
        """Threads that waited for one of these locks at a time."""
        return sum(row.threads for row in self.rows)
