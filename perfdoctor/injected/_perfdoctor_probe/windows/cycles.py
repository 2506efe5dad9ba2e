"""Loops whose steps come in cycles: an agent acts, then learns in sixteen steps; a generator steps after its critics.

The steps with the acting in them are few and unlike the others, as those with a validation run or a checkpoint are.
They are told apart by coming at equal distances and by what they take: so much of the time is how the loop works.
"""

from itertools import pairwise

LONGEST = 64
"""Steps of a cycle: a window holds a whole one."""
LONGEST_US = 1_000_000
_TIMES = 3
"""Cycles in a row, the last ones, that are equally long."""
_LEAST_SHARE = 0.2
"""Of the time, in the steps that are unlike the others; see `evidence.steady.REGULAR_SHARE`."""
_LONG = 3.0
"""Times the usual step: longer ones are unlike it, though they call the model as often."""
_BESIDE = 0.5
"""Of the long steps, that may begin an epoch or save something besides: where most do, that is what they are."""
_KEPT = 1024
"""Steps looked at, the latest."""


class Cycles:
    """Looks at each row of steps once, as it is written."""

    def __init__(self) -> None:
        self.length = 1
        self.first = 0
        """Number of the step that `seen` begins with."""
        self.seen: "list[tuple[int, int, bool]]" = []
        """Wall time, micro-batches, and whether it was something else anyhow."""

    def look(self, first: int, rows: "list[tuple[int, int, bool]]") -> "dict | None":
        """`rows` from the step `first` on: microseconds, micro-batches, whether an iterator started or something was
        saved. What to record once there is a cycle, or another one."""
        if first != self.first + len(self.seen):
            self.first, self.seen = first, []
        self.seen += rows
        if len(self.seen) > _KEPT:
            self.first += len(self.seen) - _KEPT
            self.seen = self.seen[-_KEPT:]
        found = self._found()
        # Long steps of which some are not long enough lie twice as far apart: whole cycles are whole either way.
        if found is None or (self.length > 1 and _are_multiples(found["length"], self.length)):
            return None
        self.length = found["length"]
        return found

    def _found(self) -> "dict | None":
        seen = self.seen
        walls = sorted(wall for wall, _, _ in seen)
        counts: "dict[int, int]" = {}
        for _, micro, _ in seen:
            counts[micro] = counts.get(micro, 0) + 1
        usual = max(counts, key=lambda micro: counts[micro])
        long_us = _LONG * walls[len(walls) // 2]
        by_count = [index for index, (_, micro, _) in enumerate(seen) if micro != usual]
        by_time = [index for index, (wall, _, _) in enumerate(seen) if wall > long_us]
        return self._recurring(by_count) or self._recurring(by_time)

    def _recurring(self, unlike: "list[int]") -> "dict | None":
        seen = self.seen
        if len(unlike) <= _TIMES:
            return None
        latest = unlike[-_TIMES - 1 :]
        length = latest[1] - latest[0]
        if not 1 < length <= LONGEST or any(later - one != length for one, later in pairwise(latest)):
            return None
        if sum(seen[index][2] for index in latest) > _BESIDE * len(latest):
            return None
        whole = sum(wall for wall, _, _ in seen[latest[0] : latest[-1]])
        if whole > _TIMES * LONGEST_US or sum(seen[index][0] for index in latest[:-1]) < _LEAST_SHARE * whole:
            return None
        return {"at": self.first + latest[-1], "length": length}


def _are_multiples(one: int, other: int) -> bool:
    return one % other == 0 or other % one == 0
