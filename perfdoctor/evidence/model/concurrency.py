"""Forwards on several threads of one process."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.timings import RequestTiming

NO_QUEUE = Missing("no queue of requests was seen")
ONE_THREAD = Missing("only one thread calls a model")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Root forwards over the steady span, of all threads. Durations are of one forward, milliseconds.

    The defaults are those of a job in which only the loop's own thread calls a model.
    """

    threads: int = 1
    """That called a model, most at a time between two records; 1 when only the loop's own did."""
    shared: bool = False
    """One module was called by several of them."""
    forwards: int = 0
    overlapped_share: float = 0.0
    """Of the forwards: another thread was inside one meanwhile."""
    in_flight: float = 1.0
    """Forwards under way at once, as a forward begins, itself included."""
    wall_ms: float = 0.0
    measured: int = 0
    """Overlapping forwards that were measured in full; the next four are means and the least over these."""
    cpu_ms: float = 0.0
    """Of the calling thread; of forwards that overlapped with none where hardly any did."""
    least_cpu_ms: float = 0.0
    blocked_share: float = 0.0
    """Of their wall time: neither on a CPU nor waiting for one, so waiting for a lock (or, with several intra-op
    threads, for the other threads of its team)."""
    delay_share: float = 0.0
    """Of their wall time: runnable without a CPU."""
    blocked_alone_share: float | Missing = ONE_THREAD
    """`blocked_share` of forwards that overlapped with none."""
    occupied_share: float = 0.0
    """Of the time: forwards of all threads, summed; above 1 when they overlap."""
    waiters: float = 0.0
    """Threads that stood outside a forward of their own in the very function that made a measured one: mean."""
    in_training: int = 0
    """Overlapping forwards of modules with dropout or batch norm in training mode."""
    eval_with_grad: int = 0
    """Forwards in evaluation mode that recorded a graph."""
    eval_with_grad_share: float = 0.0
    """Their share of the time of all forwards."""
    backwards: int = 0
    """Backward passes on any thread."""
    site: Site | Missing = ONE_THREAD
    timing: RequestTiming | Missing = ONE_THREAD
    backlog: float | Missing = NO_QUEUE
    """Requests that wait in the queue which the threads take them from: median of means over half a second."""

    @property
    def graph_nobody_uses(self) -> bool:
        """Most forwards of the threads record one, in evaluation mode, and no thread runs a backward pass."""
        return self.threads > 1 and self.backwards == 0 and 2 * self.eval_with_grad > self.forwards
