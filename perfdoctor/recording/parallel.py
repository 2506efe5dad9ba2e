"""How a job's work is divided among its ranks, as one of them saw it some steps into the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Division:
    """Of one rank. Ranks are written as `0-3`, `0-6/2` (every second one) or `0,1,5`, by their numbers in torch's
    default group; "" for none that torch knows of."""

    data: str = ""
    """Ranks that do the same work on other data, and average gradients with this one."""
    tensor: str = ""
    """Ranks that each hold a part of the same layers (tensor parallel)."""
    stages: tuple[int, ...] = ()
    """Of a pipeline: those that this rank computes; empty without one."""
    of_stages: int = 0
    """That the pipeline has."""
    shard_bytes: tuple[int, ...] = ()
    """Of the parameters that `fully_shard` gathers together, group by group; empty without it."""
    resharded: int = 0
    """Of these groups, how many are freed after the forward pass and gathered again for the backward pass."""
