"""From where on another batch size is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    min_share: float = 0.10
    """A tenth of the step, 1.1 times the throughput: less is not worth a change of the optimisation."""
    warning_share: float = 0.20
    """1.25 times the throughput."""
    merge_warning_share: float = 0.25
    """1.33 times the throughput: micro-batches are often small on purpose, for memory that is free only in this run."""
    error_share: float = 0.60
    """2.5 times the throughput."""
    usual_batch: int = 32
    """The guide's range is 32 to 128 samples; from its beginning on a larger batch is offered as a note."""
    usual_tokens: int = 4096
    """The same for sequences, in tokens: 32 sequences of 128."""
    factor: int = 4
    """How much larger a batch the prediction is for; products were timed up to this size."""
    allocator_share: float = 0.10
    """Share of CPU time in the kernel above which a large batch is first a matter for the allocator (PD08)."""
    memory_room: float = 0.5
    """Share of a GPU's memory in use up to which there is room for twice the batch."""
