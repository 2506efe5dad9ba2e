"""From where on Python between the operators is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    loop_share: float = 0.10
    """Rewriting a loop in whole tensors takes thought; less is not worth it."""
    loop_runs: int = 32
    """Runs of a line per step that make it a loop over elements: few networks have as many like layers."""
    forward_runs: int = 64
    """The same inside a `forward`, where deep networks call the same line once per block."""
    least_runs: int = 8
    """Fewer are no loop, even where they equal the batch size, or the line stands in a loop that was read: one over the
    nine nodes of a graph, two operators each, took a third of a small network's step."""
    small_op_us: float = 50.0
    """Mean time of the line's operators: above, they work, and Python around them does not matter."""
    read_share: float = 0.05
    """Of scalar reads on a CPU."""
    error_share: float = 0.30
    """A judgement: a third of the step spent between the operators."""
    cuda_reads: float = 2.0
    """Reads per step on CUDA that pass: one for the loss, and one of a gradient scaler, are ordinary."""
    cuda_read_share: float = 0.02
    """Of the step, of what the device can have felt: below, the host was ahead of it anyway."""
    copy_share: float = 0.05
    """Of copies back and forth."""
    repeated_share: float = 0.05
    """Of work that was done before, or that is done the long way round: a line to change."""
    list_share: float = 0.2
    """Of tensors made of lists, from where on it is an ill: simulators give lists, and a few are common."""
    dear_share: float = 0.30
    """Of one operator that few networks need in every step: whether this one does is for its author to say."""
