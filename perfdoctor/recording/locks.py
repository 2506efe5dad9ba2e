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
class BusyThread:
    """A thread beside the loop's that asks again and again whether there is something to do."""

    site: Site
    """Where it was seen to, most often."""
    cpus: float
    """What it took of a CPU meanwhile."""
    asks: float
    """Share of the looks in which it did nothing else."""

    @property
    def wasted_cpus(self) -> float:
        """Of a CPU, for asking."""
        return self.cpus * self.asks


@dataclass(frozen=True, slots=True)
class Pause:
    """A line at which a thread beside the loop's sleeps, or waits with a time limit, while everybody waits."""

    site: Site
    ran_out: int
    """Waits that ended because their time was over, while somebody looked; 0 for a sleep."""
    ms: float
    """What one of them took, on average."""
    awaited: float
    """Share of the looks in which a thread stood there, the loop's waited, and none computed."""
    otherwise: float
    """Share of the looks in which a thread stood there, of those in which the loop's did not wait."""


@dataclass(frozen=True, slots=True)
class LockWaits:
    """Which threads waited for locks of the job's own, or for nothing, by a look every few milliseconds."""

    looks: int
    loop_waits: float
    """Share of the looks in which the loop's thread waited: for such a lock, a queue, another thread."""
    rows: tuple[LockWait, ...]
    """The most waited for first."""
    busy: tuple[BusyThread, ...] = ()
    """The busiest first."""
    pauses: tuple[Pause, ...] = ()
    """The most awaited first."""
    all_wait: float | None = None
    """Share of the looks in which the loop's thread waited and no other one computed; None where nobody looked so."""

    @property
    def waiting(self) -> float:
        """Threads that waited for one of these locks at a time."""
        return sum(row.threads for row in self.rows)
