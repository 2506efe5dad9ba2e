"""Time in the operator window that is no operator's: between them, and without a CPU."""

from ..rows import milliseconds

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


def stray_ms(before: "tuple[int, int] | None", after: "tuple[int, int] | None", steps: int) -> float:
    """Time per step without a CPU that may all be in one operator: two waits for one, at their mean length. `before`
    and `after`: microseconds without one, and how often the thread got one."""
    if before is None or after is None:
        return 0.0
    waited_us, times = after[0] - before[0], after[1] - before[1]
    return milliseconds(1000 * waited_us * min(1.0, 2 / max(1, times)), steps)
