"""Where the device is while the host works: CUDA events at the borders between the parts of some steps.

One step in `EVERY` is marked. At each border that the `Timeline` crosses in it, an event is put into the stream in
which the model works; the device reaches it once all that was asked of it before is done. Nothing ever waits for
an event: whether one was reached is asked at later borders, and its time is read only when all of a step's were.

Three things follow, and no more:

- the time between two events on the device. It holds the work that the host asked for between the two borders and
  the time in which the device had none. Between the borders of waiting for a batch the host asks for nothing, so
  there it is the time that the wait left the device without work;
- how far the host was ahead: from the time at which the host crossed a border to that at which the device did. The
  two clocks are not compared directly. That an event was not reached when asked, or was, bounds the lead at that
  border from below or above; times on both clocks since the step's first border carry each bound to every other;
- how long the device can have been without work at most: at a border with a lead of L the device has work for L (or
  waits for another stream: a copy, a collective), so in a part that the host was in for longer, at most for the rest.

Marks see one stream of one device; what happens between two borders they do not tell apart.
"""

import time

import torch

from .. import records
from ..recorder import columns
from ..timeline import BACKWARD, FORWARD, INPUT, LOSS, OPTIMIZER, OTHER, PARTS, Timeline

EVERY = 7
"""Steps from one marked step to the next: no factor of the periods that loops have (2, 4, 8, 10, 50 steps)."""
OUTSTANDING = 4
"""Marked steps that the device may not have finished; with as many, no further one is marked."""
MOST_BORDERS = 128
"""Of one step: each takes 3 us of ours, and what torch and CUDA take. A step with more is left out."""
LATE = 50
"""Steps after which one whose events the device has not reached is left out."""
HOPELESS = 8
"""Marked steps left out in a row after which no more are marked."""
_OWN_MOST_NS = 20_000
"""Of one border, as our own cost: recording may have to wait for room in the stream's queue, for which the job's next
kernel would have waited otherwise."""

_PARTS = (INPUT, FORWARD, BACKWARD, OPTIMIZER)


class Cuda:
    """The seam: the stream that a loop works in. Tests have another."""

    def __init__(self, device: str) -> None:
        """`device` as torch writes it, `cuda:0`; its stream that is current now is the one."""
        self.stream = torch.cuda.current_stream(torch.device(device))

    def now(self) -> int:
        """The host's clock, ns: that of the timeline."""
        return time.perf_counter_ns()

    def event(self):
        """An event that can be recorded again and again."""
        return torch.cuda.Event(enable_timing=True)

    def record(self, event) -> None:
        """Put it into the stream."""
        event.record(self.stream)

    def capturing(self) -> bool:
        """While a graph is captured nothing may be asked of an event, and recording one would become part of it."""
        return torch.cuda.is_current_stream_capturing()

    def elsewhere(self) -> bool:
        """Whether the loop has switched to another stream."""
        return torch.cuda.current_stream(self.stream.device) != self.stream


class _Border:
    """One event, and what is known about when the device reached it."""

    __slots__ = ("event", "host_ns", "not_yet_ns", "part", "reached_ns")

    def __init__(self, part: int, host_ns: int, event) -> None:
        self.part = part
        """Of the stretch that ends here."""
        self.host_ns = host_ns
        self.event = event
        self.not_yet_ns = host_ns
        """The last time at which it was known not to be reached ..."""
        self.reached_ns = 0
        """... and the first at which it was known to be; 0 before."""


class _Step:
    """A marked step."""

    __slots__ = ("borders", "line", "reached", "step")

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self.step = line.step
        self.borders: "list[_Border]" = []
        self.reached = 0
        """Borders known to be reached, from the first on."""


class DeviceClock:
    """Marks steps, and reads what the device made of them. All is called on the training thread."""

    def __init__(self, recorder, loop, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        # A switch of its own: borders are crossed inside other hooks.
        self.border = guarded("device clock", self._border)
        self.end_loss = guarded("device clock", self._end_loss)
        self.at_boundary = guarded("device clock", self._at_boundary)
        self.start = guarded("device clock", self._start)
        self.reset()

    def reset(self) -> None:
        """Nothing is marked any more: at install, and in a forked child, where CUDA does not work."""
        self.device = None
        self.open: "_Step | None" = None
        self.waiting: "list[_Step]" = []
        self.free: list = []
        self.rows: "list[tuple]" = []
        self.left_out: "dict[str, int]" = {}
        self.in_vain = 0
        self.own_ns = 0
        self.loop.device_boundary = None

    def _start(self, devices: "list[str] | None") -> str:
        """Mark steps of a job that uses CUDA; why that cannot be, or "". `devices` as for `home`."""
        device, why = home(devices)
        if device:
            self.run(Cuda(device))
        return why

    def run(self, device) -> None:
        """Mark steps from the next boundary on."""
        self.device = device
        self.loop.device_boundary = self.at_boundary

    def _stop(self) -> None:
        self.loop.device_boundary = None

    # -- in a marked step ---------------------------------------------------------------------------------

    def _border(self, part: int, now_ns: int) -> None:
        """The loop leaves `part`, or enters one below which it lay."""
        step = self.open
        if step is None:
            return
        if len(step.borders) >= MOST_BORDERS:
            self._leave_out(step, "it has too many parts")
        elif self.device.capturing():
            self._leave_out(step, "a graph was captured")
        elif self.device.elsewhere():
            self._leave_out(step, "the loop used another stream")
        else:
            self._record(step, part, now_ns)
            self._ask(step)
        self.own_ns += min(_OWN_MOST_NS, self.device.now() - now_ns)

    def _end_loss(self, bill_to: int) -> None:
        """What ran since a forward pass was the loss, or was not."""
        for border in self.open.borders if self.open else ():
            if border.part == LOSS:
                border.part = bill_to

    def _record(self, step: _Step, part: int, now_ns: int) -> None:
        event = self.free.pop() if self.free else self.device.event()
        self.device.record(event)
        step.borders.append(_Border(part, now_ns, event))

    def _ask(self, step: _Step) -> None:
        """Which events have been reached by now: they are in order."""
        borders = step.borders
        while step.reached < len(borders):
            border = borders[step.reached]
            now = self.device.now()
            if not border.event.query():
                for later in borders[step.reached :]:
                    later.not_yet_ns = max(now, later.host_ns)
                return
            border.reached_ns = self.device.now()
            step.reached += 1

    # -- at a boundary ------------------------------------------------------------------------------------

    def _at_boundary(self, line: Timeline) -> None:
        began = self.device.now()
        line.marks = None
        step, self.open = self.open, None
        if self.device.capturing():
            if step is not None:
                self._leave_out(step, "a graph was captured")
            return
        if step is not None:
            if step.line is line:
                self.waiting.append(step)
            else:
                self._leave_out(step, "the loop moved to another thread")
        if self.waiting:
            self._collect(line.step)
        if self.in_vain >= HOPELESS:
            self._stop()
        elif line.step % EVERY == 0 and len(self.waiting) < OUTSTANDING and not self.device.elsewhere():
            self.open = _Step(line)
            self._record(self.open, OTHER, self.device.now())
            line.marks = self
        self.own_ns += self.device.now() - began

    def _collect(self, now_step: int) -> None:
        """Read the steps that the device has finished."""
        waiting, self.waiting = self.waiting, []
        for step in waiting:
            self._ask(step)
            if step.reached == len(step.borders):
                self.rows.append((step.step, *measured(step.borders)))
                self.in_vain = 0
                self._reuse(step)
            elif now_step - step.step > LATE:
                self._leave_out(step, "the device was too far behind")
            else:
                self.waiting.append(step)

    def _leave_out(self, step: _Step, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1
        self.in_vain += 1
        self._reuse(step)
        if self.open is step:
            self.open = step.line.marks = None

    def _reuse(self, step: _Step) -> None:
        self.free += [border.event for border in step.borders]

    def flush(self) -> None:
        """Queue what has been read since the last call."""
        if not self.rows and not self.left_out:
            return
        left_out = {"left_out": self.left_out} if self.left_out else {}
        self.recorder.record("device", **columns(records.DEVICE_COLUMNS, self.rows), **left_out)
        self.rows = []
        self.left_out = {}


def measured(borders: "list[_Border]") -> tuple:
    """A step of which the device has reached every border, us: `records.DEVICE_COLUMNS` but for its number."""
    first = borders[0]
    asked = [(border.host_ns - first.host_ns) / 1000 for border in borders]
    done = [0.0] + [first.event.elapsed_time(border.event) * 1000 for border in borders[1:]]
    # How much longer the lead is at a border than at the first one.
    longer = [on_device - on_host for on_device, on_host in zip(done, asked)]
    low = max((border.not_yet_ns - border.host_ns) / 1000 - more for border, more in zip(borders, longer))
    high = min((border.reached_ns - border.host_ns) / 1000 - more for border, more in zip(borders, longer))
    spent = [0.0] * PARTS
    idle = 0.0
    for i, border in enumerate(borders[1:], 1):
        took = done[i] - done[i - 1]
        spent[border.part] += took
        idle += min(took, max(0.0, asked[i] - asked[i - 1] - (low + longer[i - 1])))
    furthest = max(longer)
    return tuple(
        int(us)
        for us in (
            asked[-1],
            done[-1],
            *[spent[part] for part in _PARTS],
            idle,
            low + furthest,
            max(low, high) + furthest,
        )
    )


def home(devices: "list[str] | None") -> "tuple[str, str]":
    """The device that the model lies on, and "", or "" and why none can be named.

    `devices` are those of the parameters: None in a loop without optimizer, where the one that is current must do.
    """
    if devices is None:
        return f"cuda:{torch.cuda.current_device()}", ""
    devices = [device for device in devices if device.startswith("cuda")]
    if not devices:
        return "", "the model does not lie on a CUDA device"
    return (devices[0], "") if len(devices) == 1 else ("", "the model lies on several devices")
