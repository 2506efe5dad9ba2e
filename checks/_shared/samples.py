"""Samples that come again with every epoch, and what keeping something of each of them takes."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Missing

MEMORY_SHARE = 0.5
"""Of the free memory, what may be filled with what is kept: the job needs some more later."""


def free_bytes(evidence: Evidence) -> int:
    """Of memory, on this machine; 0 where it was not read."""
    return 0 if isinstance(evidence.host, Missing) else evidence.host.memory_available_bytes


def fits(evidence: Evidence, size: int, share: float = MEMORY_SHARE) -> bool:
    """Whether every rank on this machine could keep so many bytes."""
    return size * max(1, evidence.job.local_ranks) <= share * free_bytes(evidence)


def comes_again(evidence: Evidence, per_step: float, length: int) -> bool:
    """Whether the loop, which takes so many of `length` samples per step on each rank, takes some twice; what is not
    known counts as that."""
    planned = 0 if isinstance(evidence.growth, Missing) else evidence.growth.planned_steps
    drawn = planned * per_step * evidence.job.world_size
    return not drawn or drawn > length
