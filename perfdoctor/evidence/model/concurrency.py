"""Forwards on several threads of one process."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.concurrency import RequestTiming

NO_QUEUE = Missing("no queue of requests was seen")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Root forwards over the steady span, of all threads. Durations are of one forward, milliseconds."""

    threads: int
    """That called a model, most at a time between two records; 1 when only the loop's own did."""
    shared: bool
    """One module was called by several of them."""
    forwards: int
    overlapped_share: float
    """Of the forwards: another thread was inside one meanwhile."""
    in_flight: float
    """Forwards under way at once, as a forward begins, itself included."""
    wall_ms: float
    measured: int
    """Overlapping forwards that were measured in full; the next four are means and the least over these."""
    cpu_ms: float
    """Of the calling thread; of forwards that overlapped with none where hardly any did."""
    least_cpu_ms: float
    blocked_share: float
    """Of their wall time: neither on a CPU nor waiting for one, so waiting for a lock (or, with several intra-op
    threads, for the other threads of its team)."""
    delay_share: float
    """Of their wall time: runnable without a CPU."""
    blocked_alone_share: float | Missing
    """`blocked_share` of forwards that overlapped with none."""
    occupied_share: float
    """Of the time: forwards of all threads, summed; above 1 when they overlap."""
    waiters: float
    """Threads that stood outside a forward of their own in the very function that made a measured one: mean."""
    in_training: int
    """Overlapping forwards of modules with dropout or batch norm in training mode."""
    eval_with_grad: int
    """Forwards in evaluation mode that recorded a graph."""
    eval_with_grad_share: float
    """Their share of the time of all forwards."""
    backwards: int
    """Backward passes on any thread."""
    site: Site | Missing
    timing: RequestTiming | Missing
    backlog: float | Missing = NO_QUEUE
    """Requests that wait in the queue which the threads take them from: median of means over half a second."""

    @property
    def graph_nobody_uses(self) -> bool:
        """Most forwards of the threads record one, in evaluation mode, and no thread runs a backward pass."""
        return self.threads > 1 and self.backwards == 0 and 2 * self.eval_with_grad > self.forwards
