"""Steps that take long at equal distances, and are no part of a short cycle: an epoch starts in them, or an evaluation
lies before them. What lies between two steps can be looked at where it is known when it comes again."""

from itertools import pairwise

from . import cycles

LONGEST = 4096
"""Steps from one to the next: more are not waited for."""
_TIMES = 3
"""Equal distances that are no chance, of steps that nothing but their length marks."""
_LONG = 3.0
"""Times the usual step."""
_VERY_LONG, _FEWER = 10.0, 2
"""The same of those that no pause of the machine makes, such as evaluations of a whole data set."""
_NO_PAUSE_US = 100_000
"""What takes as long is no neighbour that had the CPU for a moment: one distance is enough, which is that from the
job's beginning to the first of them."""
_AS_LONG = 0.5
"""Of the longest but three: what is shorter may be a pause of the machine between those that come again."""
_ALIKE = 1.25
"""Times as long or as short as one in which nothing of ours was: what ours adds to a step that long is less."""
_LEAST_SHARE = 0.05
"""Of the time from one to the next, in what the long step takes beyond a usual one: what is worth finding."""
_KEPT = 4 * LONGEST
"""Steps looked at, the latest."""


class LongSteps:
    """Looks at each row of steps once, as it is written, until it knows."""

    def __init__(self) -> None:
        self.first = 0
        """Number of the step that `walls` begins with."""
        self.walls: "list[int]" = []
        self.with_ours: "dict[int, int]" = {}
        """Microseconds of the steps that held work of ours, which are 0 in `walls`."""
        self.started: "list[int]" = []
        """Steps in which a loader's iterator was started, the latest."""
        self.is_known = False

    def look(self, first: int, walls: "list[int]", started: "set[int]", marked: "set[int]") -> "dict | None":
        """`walls`: microseconds of the steps from `first` on; those that are `marked` held work of ours. What to record
        once it is known where the next one is to be expected."""
        if self.is_known:
            return None
        if first != self.first + len(self.walls):
            self.first, self.walls, self.with_ours, self.started = first, [], {}, []
        self.with_ours.update((number, wall) for number, wall in enumerate(walls, first) if number in marked)
        self.walls += (0 if number in marked else wall for number, wall in enumerate(walls, first))
        self.started = [*self.started, *sorted(started)][-_TIMES:]
        over = max(0, len(self.walls) - _KEPT)
        self.first, self.walls = self.first + over, self.walls[over:]
        self.with_ours = {number: wall for number, wall in self.with_ours.items() if number >= self.first}
        found = self._by_start() or self._by_length()
        self.is_known = found is not None
        return found

    def _by_start(self) -> "dict | None":
        """Where one loader starts at equal distances: the first start is that of the job, which takes long anyway."""
        return self._told(self.started) if len(self.started) > 1 else None

    def _by_length(self) -> "dict | None":
        usual = self._usual()
        long, very_long = self._above(_LONG * usual), self._above(_VERY_LONG * usual)
        by_far = self._equal(sorted(very_long + self._as_long_as(very_long)), _FEWER)
        no_pauses = self._above(max(_VERY_LONG * usual, _NO_PAUSE_US))
        if by_far is None and no_pauses and self.first == 0:
            # What comes after each epoch comes as many steps after the job's first one.
            found = self._equal(sorted([0, *no_pauses, *self._as_long_as(no_pauses)]), _FEWER)
            by_far = None if found is None or self._may_be_cycle(**found) else found
        if by_far is not None or len(long) <= _TIMES:
            return by_far
        bar_us = max(_LONG * usual, _AS_LONG * sorted(self.walls)[-1 - _TIMES])
        return self._equal(long, _TIMES) or self._equal(self._above(bar_us), _TIMES)

    def _may_be_cycle(self, at: int, length: int) -> bool:
        """Whether windows may come to hold all of it (`cycles`), for which it has to come more often."""
        return length <= cycles.LONGEST and sum(self.walls[at - length : at]) <= cycles.LONGEST_US

    def _above(self, us: float) -> "list[int]":
        """Steps that take longer, without the first one, which takes long anyway."""
        return [number for number, wall in enumerate(self.walls, self.first) if wall > us and number]

    def _as_long_as(self, numbers: "list[int]") -> "list[int]":
        """Of the steps that held work of ours those that take about as long as one of these."""
        wanted = [self.walls[number - self.first] for number in numbers]
        return [
            number
            for number, wall in self.with_ours.items()
            if any(one < _ALIKE * wall and wall < _ALIKE * one for one in wanted)
        ]

    def _equal(self, numbers: "list[int]", times: int) -> "dict | None":
        """What the latest of them tell, with so many distances."""
        return self._told(numbers[-times - 1 :]) if len(numbers) > times else None

    def _told(self, numbers: "list[int]") -> "dict | None":
        """None where their distances are not equal, or where it would gain nobody anything to know."""
        distances = {later - one for one, later in pairwise(numbers)}
        length, at = distances.pop(), numbers[-1]
        if distances or not 2 < length <= LONGEST or at < self.first:
            return None
        usual, wall = self._usual(), self.walls[at - self.first] or self.with_ours[at]
        worth = wall > _LONG * usual and wall - usual >= _LEAST_SHARE * (wall + (length - 1) * usual)
        return {"at": at, "length": length} if worth else None

    def _usual(self) -> int:
        walls = sorted(wall for wall in self.walls if wall)
        return walls[len(walls) // 2] if walls else 0
