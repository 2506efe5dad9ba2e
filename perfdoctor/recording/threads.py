"""What the probe wrote of forwards on several threads, typed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForwardsSeen:
    """Root forwards of all threads since the last such record."""

    step: int
    us: int = 0
    """Since the last such record."""
    threads: int = 0
    modules: int = 0
    shared: int = 0
    """Modules that several threads called."""
    calls: int = 0
    overlapped: int = 0
    others: int = 0
    """Forwards of other threads under way as one began, summed over all."""
    busy_us: int = 0
    alone: tuple[int, ...] = (0, 0, 0, 0)
    together: tuple[int, ...] = (0, 0, 0, 0)
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
    site: int = -1


@dataclass(frozen=True, slots=True)
class BatchRound:
    """Operators of one forward, timed once: for one request and a batch, with one intra-op thread and with all."""

    step: int
    copies: int = 2
    ops: int = 0
    timed: int = 0
    one_us: float = 0.0
    batch_us: float = 0.0
    threads: int = 1
    team_us: float = 0.0
    single_us: float = 0.0
