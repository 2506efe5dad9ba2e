"""When a running job was observed for long enough."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from ..evidence import steady
from ..evidence.compilation import compiled_late
from ..evidence.model import Missing
from ..evidence.stats import block_interval
from ..evidence.trend import DRIFT, trend
from ..recording.model import ProcessRecording
from ..recording.repeats import RepeatsWindow

STEPS = 200
SECONDS = 60.0
"""The most that is observed of a job whose user asked for no number: for steps that do not settle, and windows that
do not come."""
UNSETTLED = ((STEPS, 0.0), (100, 15.0), (0, 30.0))
"""Steps, and seconds of them, after which a step that does not settle is told with the interval that it has, once the
windows are through: of steps of 150 ms a hundred."""
_PATIENT = 2.5
"""Times as long, for steps that surely get longer and of which nobody knows yet why. What the job keeps is counted
after as many steps again as there were before, three times until it counts as growing: after 104, 212 and 416 steps of
11 ms, of which 306 were seen without this, and a memory that each of them joined anew was told as page faults."""
_LEAST_STEPS = 30
_LEAST_SECONDS = 2.0
"""Four samples of the machine: fewer say nothing about neighbours."""
_PRECISION = 0.03
_SETTLED_S = 1.0
"""A step is settled when the half width of its mean's 95 % interval has been at most 3 % of it at every look for a
second. Looking again and again makes the interval cover less than it says: of jobs that are ended by this, at most
one in 50 has a mean that is off by more than 5 % (`tests/observation/test_enough.py`)."""
_LEAST_ROUNDS = 3
"""Timings of other numbers of threads, once there are some: one alone may have met a neighbour."""
_WINDOW_SHARE = 0.3
"""Of what was observed, the most that windows may take, which are done by then: with a tenth, a step of 250 ms in
28,000 operators was watched for 54 s, though it had settled after 20. A round of timings waits for 25 times its length:
it alone never reaches this."""
_COMPILED_AGAIN, _COMPILING = 3, 0.05
"""What is compiled again for the first or second time, for so much of the later half of the steps, may be its last new
size, or the first of many: three times tell, and as many steps again without one."""

_LAST_S, _LAST = 3.0, 0.25
"""Before the end of the loop, where that is known, and of what was observed until then: what is timed after the last
step needs the job alive, and the last steps tell no more than those before."""
_STARTS, _EPOCH_S = 2, 10.0
"""Starts of epochs, or of what else comes again between two steps, that are compared; and the most that is waited from
one to the next."""
_FAR, _FAR_SHARE = 10.0, 0.05
"""Times the usual step, and share of the time, of steps that may come again."""


_AHEAD_S, _BETWEEN_S = 30.0, 15.0
"""What is left of a phase at most, and no more than was seen of it, that is waited for where the job trains on after
it: what comes next may take longer. Then so long for the next one to begin, and to be known as one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """How much to observe."""

    steps: int | None
    """Steady steps that the user asked for."""
    seconds: float | None
    """Seconds of steady steps that the user asked for. With both, whichever comes first; with neither, until the step
    is settled, for `UNSETTLED` or `SECONDS` at most."""
    patience_s: float
    """How long to wait for a step. With `to_end` only for the first one: a job may validate for hours."""
    to_end: bool
    windows: tuple[str, ...]
    samples: int = 0
    """Of stacks, to wait for where the user asked for neither steps nor seconds."""


class Enough:
    """What was seen of the lead rank's steady steps, look by look."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.steps = 0
        self.seconds = 0.0
        self.precision = math.inf
        """Half the width of the interval of the mean step, as a share of it."""
        asked = goal.steps is not None or goal.seconds is not None
        self._seconds = goal.seconds if asked else SECONDS
        self._may_settle = not asked
        self._most = UNSETTLED if self._may_settle else ((goal.steps, 0.0),) if goal.steps is not None else ()
        self._samples = 0 if asked else goal.samples
        self._sampled = 0
        self._settled_at: float | None = None
        self._awaited: tuple[int, float] | None = None
        """The phase that another one is awaited after, by its first step, and until when."""

    def look(self, process: ProcessRecording) -> bool:
        """Whether what was recorded so far is enough."""
        return self._is_enough(process) and not self._awaits_phase(process)

    def _is_enough(self, process: ProcessRecording) -> bool:
        selection = steady.select(process)
        if isinstance(selection, Missing):
            return False
        walls = selection.series("wall_us") / 1e6
        self.steps, self.seconds = selection.count, float(walls.sum()) * selection.cycle
        low, high = block_interval(walls)
        self.precision = (high - low) / 2 / float(walls.mean())
        if self._samples:
            self._sampled = process.sampled
            return self._sampled >= self._samples or self.seconds >= SECONDS
        if self._seconds is not None and self.seconds >= self._seconds:
            return True
        if self._may_settle and self._ends_soon(process):
            return True
        complete = self.seconds >= _LEAST_SECONDS and self._windows_done(process)
        if self._may_settle and _compiles_again(process, selection):
            complete = False
        if (
            complete
            and self._has_most()
            and (self._has_most(_PATIENT) or not self._looks_for_cause(process, selection))
        ):
            return True
        settles = not (0 < len(process.thread_rounds) < _LEAST_ROUNDS or _may_grow(process, selection))
        return self._may_settle and self._is_settled(complete and settles)

    def _has_most(self, times: float = 1) -> bool:
        """Whether as much was seen as of a step that does not settle, or so many times as much."""
        return any(self.steps >= times * steps and self.seconds >= times * seconds for steps, seconds in self._most)

    def _looks_for_cause(self, process: ProcessRecording, selection: steady.Selection) -> bool:
        return self._may_settle and bool(self.goal.windows) and _grows_unexplained(process, selection)

    def _is_settled(self, complete: bool) -> bool:
        if not (complete and self.steps >= _LEAST_STEPS and self.precision <= _PRECISION):
            self._settled_at = None
            return False
        now = time.monotonic()
        if self._settled_at is None:
            self._settled_at = now
        return now - self._settled_at >= _SETTLED_S

    def _ends_soon(self, process: ProcessRecording) -> bool:
        """Whether the loop is about to end by itself, and all that windows are for was seen."""
        few = self.steps < _LEAST_STEPS or self.seconds < _LEAST_SECONDS
        if process.planned is None or few or self._missing(process):
            return False
        left = process.planned.steps - int(process.steps["step"].max())
        return left * self.seconds / self.steps <= min(_LAST_S, _LAST * self.seconds)

    def _windows_done(self, process: ProcessRecording) -> bool:
        spent = process.samples[-1].window_us / 1e6 if process.samples else 0.0
        return not self._missing(process) and spent <= _WINDOW_SHARE * self.seconds and not self._awaits_start(process)

    def _missing(self, process: ProcessRecording) -> list[str]:
        """Windows that are still to come."""
        seen = {
            "ops": process.ops,
            "sites": process.call_sites,
            "lines": process.code_lines,
            "repeats": process.repeats,
            "subnormals": process.subnormals,
            "locks": process.lock_waits,
            "same": process.same_results,
            "counters": process.counters,
            "memory": process.memory,
            "objects": process.objects,
        }
        faults = {fault.hook for fault in process.faults}
        asked = process.repeats.asks if isinstance(process.repeats, RepeatsWindow) else ()
        wanted = (*self.goal.windows, *asked)
        return [name for name in wanted if seen.get(name) is None and f"window {name}" not in faults]

    def _awaits_phase(self, process: ProcessRecording) -> bool:
        """Whether the job trains on after the phase under way, and that is over soon."""
        phase = process.phases[-1] if process.phases else None
        if phase is None or phase.later is None or not phase.steps or not self._may_settle:
            return False
        now = time.monotonic()
        if self._awaited is None or self._awaited[0] != phase.step:
            left = phase.step + phase.steps - int(process.steps["step"].max())
            left_s = max(0, left) * self.seconds / max(1, self.steps)
            soon = left_s <= min(_AHEAD_S, self.seconds)
            self._awaited = phase.step, now + left_s + _BETWEEN_S if soon else now
        return now < self._awaited[1]

    def _awaits_start(self, process: ProcessRecording) -> bool:
        """Whether another epoch is about to start that is to be looked at."""
        long, seen = process.long_steps, process.epoch_starts
        if isinstance(seen, Missing) or (seen is not None and seen.starts >= _STARTS):
            return False
        steps = _until_next(process) if long is None else long.length
        return 0 < steps <= _EPOCH_S * max(1, self.steps) / max(self.seconds, 1e-3)

    @property
    def done(self) -> float | None:
        """Share of what is to be observed; None where the job's end is the goal."""
        if self.goal.to_end:
            return None
        if self._samples:
            return min(1.0, max(self._sampled / self._samples, self.seconds / SECONDS))
        shares = [0.0]
        if self._seconds is not None:
            shares.append(self.seconds / self._seconds)
        least = self.seconds / _LEAST_SECONDS
        for steps, seconds in self._most:
            gone = (done / most for done, most in ((self.steps, steps), (self.seconds, seconds)) if most)
            shares.append(min(*gone, least))
        if self._may_settle and self.precision > 0:
            # An interval narrows with the square root of the steps.
            shares.append(min(self.steps / _LEAST_STEPS, least, (_PRECISION / self.precision) ** 2))
        return min(1.0, max(shares))

    @property
    def phase(self) -> str:
        """In words, once there are steady steps."""
        if self._awaited is not None and time.monotonic() < self._awaited[1]:
            return "waiting for the next phase of the job"
        if self.goal.steps is not None:
            return f"observing, {min(self.steps, self.goal.steps)} of {self.goal.steps} steady steps"
        return f"observing, {self.steps} steady steps"


def _until_next(process: ProcessRecording) -> int:
    """Steps until another one is due that takes far longer, such as one after an evaluation, where one or two did; 0
    where none is, or where they take little of the time. Three are known to come again, or not to."""
    clear = process.steps.where((process.steps["marked"] == 0) & (process.steps["step"] > 0))
    walls, numbers = clear["wall_us"], clear["step"]
    if not len(walls):
        return 0
    far = walls > _FAR * float(np.median(walls))
    at = [0, *numbers[far].tolist()]
    if not 1 < len(at) <= _STARTS + 1 or walls[far].sum() < _FAR_SHARE * walls.sum():
        return 0
    return int(max(0, 2 * at[-1] - at[-2] - int(numbers[-1]) + 1))


def _may_grow(process: ProcessRecording, selection: steady.Selection) -> bool:
    """Whether the job keeps more and more, and its steps may get longer by that or not: more steps tell."""
    if process.growth is None:
        return False
    course = trend(selection)
    return not isinstance(course, Missing) and course.low < DRIFT and (course.low > 0 or course.high >= DRIFT)


def _grows_unexplained(process: ProcessRecording, selection: steady.Selection) -> bool:
    """Whether steps surely get longer, and what makes them so was not seen to grow, or not timed for a second time."""
    if process.growth is not None and process.later_lines is not None:
        return False
    course = trend(selection)
    return not isinstance(course, Missing) and course.is_gradual and course.low >= DRIFT


def _compiles_again(process: ProcessRecording, selection: steady.Selection) -> bool:
    late, compiled = compiled_late(process.compiled, selection)
    again = [one for one in compiled if one.reason]
    spent_us = sum(one.us for one in again)
    return 0 < len(again) < _COMPILED_AGAIN and spent_us >= _COMPILING * selection.rows["wall_us"][late].sum()
