"""A backward pass that is walked for no parameter's sake."""

from __future__ import annotations

from .._shared.graph import GRAPH_SAVES

BACKWARD_SAVES = (0.8, 1.0)
"""Of the measured backward pass through a model whose gradients are never used: all of it, as far as it was told
apart."""


def without_graph(forward_ms: float, backward_ms: float) -> tuple[float, float]:
    """What recording no graph saves of those, at least and at most."""
    low, high = (
        graph * forward_ms + kept * backward_ms for graph, kept in zip(GRAPH_SAVES, BACKWARD_SAVES, strict=True)
    )
    return low, high
