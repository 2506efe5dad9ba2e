"""How a job's work is divided among its ranks, as one of them saw it some steps into the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Division:
    """Of one rank. Numbers of ranks are those in torch's default group."""

    data: tuple[int, ...] = ()
    """Ranks that do the same work on other data, and average gradients with this one; empty where torch does not know
    of any."""
    tensor: tuple[int, ...] = ()
    """Ranks that each hold a part of the same layers (tensor parallel)."""
    stages: tuple[int, ...] = ()
    """Of a pipeline: those that this rank computes; empty without one."""
    of_stages: int = 0
    """That the pipeline has."""
    shard_bytes: tuple[int, ...] = ()
    """Of the parameters that `fully_shard` gathers together, group by group; empty without it."""
    resharded: int = 0
    """Of these groups, how many are freed after the forward pass and gathered again for the backward pass."""
