"""Exclusive time of the training thread, part by part, and the rows that become `steps` records.

A stack of parts: entering one stops the clock of the one below, so `gc` inside `forward` is subtracted from
`forward`. What runs between parts is `other`, with one exception: the stretch between a root forward and the
backward pass is the loss, and counts as forward once a backward pass shows that it was one.
"""

import time

OTHER, INPUT, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, GC, LOSS, COMMUNICATION, LOGGING = range(10)
PARTS = 10

_clock = time.perf_counter_ns
_cpu_clock = time.thread_time_ns
_COLUMNS = (INPUT, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, GC, COMMUNICATION, LOGGING)
_INSIDE = (GC, COMMUNICATION)
"""Parts that interrupt another, which goes on after them: no border on the device."""
_PASSING = (*_INSIDE, LOGGING)
"""What may come in the middle of the loss without ending it."""


class Timeline:
    """The clock of one training thread."""

    def __init__(self, before: "Timeline | None" = None) -> None:
        """Goes on counting from `before`, the clock of another thread."""
        self.spent = [0] * PARTS
        self.stack = [OTHER]
        self.mark = self.boundary_ns = _clock()
        self.cpu_mark = _cpu_clock()
        self.cpu_us: "list[int]" = [] if before is None else before.cpu_us
        self.micro = 0
        self.events = before.events if before else 0
        self.step = before.step if before else 0
        self.rows: "list[tuple[int, list[int], int]]" = before.rows if before else []
        """Wall time, time by part (ns) and micro-batches of each step; made into columns when they are written."""
        self.marks = None
        """The `DeviceClock`, in a step that is marked on the device too."""
        self.borders = None
        """The `Borders`, while a trace is kept: they are told of every change of part."""

    def enter(self, part: int) -> int:
        """Start `part`; the part below stands still until `leave`. Returns the time now, ns."""
        now = _clock()
        stack = self.stack
        below = stack[-1]
        self.spent[below] += now - self.mark
        self.mark = now
        if self.borders is not None:
            self.borders.crossed(below, now)
        if self.marks is not None and part not in _INSIDE:
            self.marks.border(below, now)
        if below == LOSS and part != FORWARD and part not in _PASSING:
            self._end_loss(FORWARD if part == BACKWARD else OTHER)
        stack.append(part)
        self.events += 1
        return now

    def leave(self, part: int) -> int:
        """End `part`, and a loss stretch that began inside it. Returns the time now, ns."""
        now = _clock()
        stack = self.stack
        top = stack[-1]
        self.spent[top] += now - self.mark
        self.mark = now
        if self.borders is not None:
            self.borders.crossed(top, now)
        if self.marks is not None and part not in _INSIDE:
            self.marks.border(top, now)
        if top == LOSS and part != LOSS:
            self._end_loss(OTHER)
            top = stack[-1]
        if top == part and len(stack) > 1:
            stack.pop()
        return now

    def drop(self, part: int) -> None:
        """Take every `part` off the stack: what should have ended it did not."""
        while part in self.stack[1:]:
            self.stack.remove(part)

    def clear(self) -> None:
        """Nothing is open any more: what a broken hook has entered, nobody would leave."""
        now = _clock()
        self.spent[self.stack[-1]] += now - self.mark
        self.mark = now
        if self.stack[-1] == LOSS:
            self._end_loss(OTHER)
        self.stack[:] = [OTHER]

    def _end_loss(self, bill_to: int) -> None:
        self.stack.pop()
        self.spent[bill_to] += self.spent[LOSS]
        self.spent[LOSS] = 0
        if self.borders is not None:
            self.borders.end_loss(bill_to)
        if self.marks is not None:
            self.marks.end_loss(bill_to)

    def boundary(self) -> None:
        """Close the step that ends now and queue its row."""
        now = _clock()
        spent = self.spent
        spent[self.stack[-1]] += now - self.mark
        self.mark = now
        if self.borders is not None:
            self.borders.step_ended(self.step, self.stack[-1], now)
        if self.marks is not None:
            self.marks.border(self.stack[-1], now)
        if self.stack[-1] == LOSS:
            self._end_loss(OTHER)
        self.rows.append((now - self.boundary_ns, spent, self.micro))
        self.spent = [0] * PARTS
        self.step += 1
        self.boundary_ns = now
        self.micro = 0

    def settle_cpu(self) -> None:
        """Share the CPU time since the last call among the steps since then.

        Reading it is a system call, the dearest part of a boundary if done in every step.
        """
        cpu = _cpu_clock()
        count = len(self.rows) - len(self.cpu_us)
        if cpu < self.cpu_mark:  # a new thread under the number of one that has ended
            self.cpu_mark = 0
        if count > 0:
            self.cpu_us += [(cpu - self.cpu_mark) // (1000 * count)] * count
        self.cpu_mark = cpu

    def taken_rows(self) -> "list[tuple]":
        """The rows so far, complete, in the order of `records.STEP_COLUMNS`; they are ours no more."""
        if len(self.cpu_us) < len(self.rows):
            self.settle_cpu()
        rows = []
        for (wall, spent, micro), cpu in zip(self.rows, self.cpu_us):
            rows.append((wall // 1000, *[spent[part] // 1000 for part in _COLUMNS], cpu, micro))
        self.rows.clear()
        self.cpu_us.clear()
        return rows

    def skip_own_time(self) -> None:
        """Leave out what has passed since the last boundary: perfdoctor spent it, not the job."""
        self.spent = [0] * PARTS  # a collection that our own objects set off
        self.mark = self.boundary_ns = _clock()
        self.cpu_mark = _cpu_clock()
        if self.borders is not None:
            self.borders.step_begins(self.mark)


def unit_ns() -> float:
    """Nanoseconds of one enter-and-leave of the timeline in this process: the timing of one hook event."""
    line = Timeline()
    began = _clock()
    for _ in range(200):
        line.enter(GC)
        line.leave(GC)
    return (_clock() - began) / 200
