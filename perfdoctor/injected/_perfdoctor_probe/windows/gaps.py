"""Time between operators in the operator window: what launching them leaves, and code of the job's own."""

LONG_NS = 200_000
"""A pause from here on is code that does something else than call operators: a simulator, a loop over samples, a wait.
From one operator of a step to the next it takes 3 to 20 us, through a module with hooks 50."""


def long_ns(spans: "dict[int, list[tuple[int, int]]]") -> int:
    """Long pauses of the thread that ran the most operators. `spans`: (start, end) of operators, by thread."""
    longest = max(spans.values(), key=len, default=[])
    total = 0
    reached = None
    for start, end in sorted(longest):
        if reached is not None and start - reached >= LONG_NS:
            total += start - reached
        if reached is None or end > reached:
            reached = end
    return total
