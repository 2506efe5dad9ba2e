"""Nodes of an autograd graph."""

_MOST = 5_000
"""A larger one is not gone through."""


def nodes(roots: list) -> "set | None":
    """All that a backward pass from these goes through; None of too many."""
    seen, waiting = set(roots), list(roots)
    while waiting:
        for below, _ in waiting.pop().next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
        if len(seen) > _MOST:
            return None
    return seen
