"""Forwards on several threads of one process."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing, Site

NOT_COUNTED = Missing("this recording does not say how many threads call the model", "record the job again")
NO_QUEUE = Missing("no queue of requests was seen")


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """The operators of one of the job's own forwards, timed in its process: on their own shapes, and as one batch."""

    copies: int
    """Requests in the batch."""
    ops: int
    """Operators of one forward."""
    timed: int
    """Those of them that could be timed."""
    one_ms: float
    batch_ms: float
    """CPU time of one thread, the least over the rounds."""
    threads: int
    """Intra-op threads of the job."""
    team_ms: float
    single_ms: float
    """One forward's operators by the clock beside the job's other threads: with all intra-op threads, with one."""
    rounds: int

    def of(self, requests: float) -> float:
        """Milliseconds of a batch of so many requests, on the line through the two that were timed."""
        return self.one_ms + max(0.0, self.batch_ms - self.one_ms) / max(1, self.copies - 1) * (requests - 1)


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
