"""Forwards on several threads of one process."""

from __future__ import annotations

from dataclasses import dataclass

from .base import NO_LINE, Missing, Site


@dataclass(frozen=True, slots=True)
class ForwardsSeen:
    """Root forwards of all threads since the last such record."""

    step: int
    us: int = 0
    """Since the last such record."""
    threads: int = 0
    shared: int = 0
    """Modules that several threads called."""
    calls: int = 0
    overlapped: int = 0
    others: int = 0
    """Forwards of other threads under way as one began, summed over all."""
    busy_us: int = 0
    alone: tuple[int, int, int, int] = (0, 0, 0, 0)
    together: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Measured forwards, that overlapped with none and with others: count, wall, CPU, run delay."""
    least_cpu_us: int = 0
    waiters: int = 0
    """Other threads in the function that made a measured forward, outside any of their own; over all measured."""
    backlog: float | None = None
    """Requests in the queue that the threads take them from, mean over the measured; None where no queue was seen."""
    in_training: int = 0
    """Overlapping, of modules with dropout or batch norm in training mode."""
    eval_with_grad: int = 0
    eval_with_grad_us: int = 0
    backwards: int = 0
    site: Site | Missing = NO_LINE


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
    rounds: int = 1

    def of(self, requests: float) -> float:
        """Milliseconds of a batch of so many requests, on the line through the two that were timed."""
        return self.one_ms + max(0.0, self.batch_ms - self.one_ms) / max(1, self.copies - 1) * (requests - 1)
