"""Forwards on several threads: how many are under way at once, and what the threads wait for inside them.

Nothing here runs until a root module is called on a thread other than the loop's; a job with one thread pays for
a comparison. A count costs about 2 us a forward; now and then one forward is measured: wall time, CPU time of its
thread, and the time that thread was runnable without a CPU. What is left of the wall is a wait for a lock, most
often the interpreter's, because torch gives it back in every operator and must get it again.
"""

import sys
import time

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from .. import procfs, threads
from ..sites import users_frame
from .backlog import Backlog

_MEASURED = 128
"""Forwards measured between two records: every n-th, whatever its length. By the clock it would always be the one
after a long wait. Measuring one costs about 40 us."""
_SETTLED = 64
"""Forwards that overlapped, or had threads wait for them, after which one is recorded to be timed."""
_BATCH = 32
"""Requests timed together at most, where more are queued up."""
_LOST = 50
"""Forwards of other threads without one of the loop's, after which another thread takes its place ..."""
_PATIENCE_NS = 3_000_000_000
"""... but not before this long where a window watches the loop's thread: what watching costs there, others may use."""

_clock = time.perf_counter_ns
_cpu_clock = time.thread_time_ns
_delay = procfs.thread_delay_ns


class _Seen:
    """Counters since the last record. Threads add to it without a lock: a lost count among thousands is no harm."""

    def __init__(self) -> None:
        self.began_ns = _clock()
        self.calls = 0
        self.overlapped = 0
        self.others = 0
        """Forwards under way as one began, summed over all."""
        self.busy_ns = 0
        self.threads: "set[int]" = set()
        self.modules: "dict[int, int]" = {}  # id -> its only thread, 0 for several
        self.alone = [0, 0, 0, 0]
        self.together = [0, 0, 0, 0]
        """Measured forwards, their wall, CPU and delay."""
        self.least_cpu_ns = 0
        self.moody: "dict[int, bool]" = {}
        """Modules in training mode: whether that makes a difference."""
        self.in_training = 0
        self.backlog = Backlog()
        self.waiters = 0
        """Threads that stood in the very function that made a measured forward, outside any of their own."""
        self.eval_with_grad = [0, 0]
        self.backwards = 0


class Concurrency:
    """Counts root forwards by thread, once there is more than one."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.make_microbenchmark = lambda copies: None
        """Gives a `RequestMicrobenchmark`, or None where no forward can be recorded now; set by the probe."""
        self.is_watched = lambda: False
        """Whether a window watches the loop's thread; set by the probe."""
        self.on_other_thread = lambda ident: None
        """Told of another thread's forward that has ended; set by the probe."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: at install, and in a forked child."""
        self.on = False
        self.inside: "dict[int, tuple]" = {}
        self.begun = 0
        self.stride = 8
        self.foreign = self.entered_ns = 0
        self.site = -1
        self.overlaps = self.waited = 0
        self.waiting = 0
        """Threads found to wait for a lock, when last looked at."""
        self.recording = None
        self.microbenchmark = None
        self.seen = _Seen()

    # -- forwards, on any thread --------------------------------------------------------------------------

    def entered(self, ident: int) -> bool:
        """A root module is called on thread `ident`; False when that thread is inside one already."""
        if ident in self.inside or _in_backward():
            return False
        if not self.on:
            self.on = True
            self.seen = _Seen()
        others = len(self.inside)
        self.begun += 1
        if not self.begun % self.stride:
            if self.site < 0 and (others or self.waited):
                self.site = self.sites.here(4)
            # The wall's clock is read first here and last in `left`: the other two lie within.
            self.inside[ident] = (_clock(), others, self.begun, _cpu_clock(), _delay())
        else:
            self.inside[ident] = (_clock(), others, self.begun, 0, None)
        return True

    def loop_entered(self, ident: int) -> None:
        """The same on the loop's thread."""
        self.foreign, self.entered_ns = 0, _clock()
        if not self.entered(ident) or self.microbenchmark is not None or self.overlaps + self.waited < _SETTLED:
            return
        queued = min(_BATCH, int(self.seen.backlog.mean() or 0))
        microbenchmark = self.make_microbenchmark(max(2, queued, len(self.inside) + self.waiting))
        if microbenchmark is not None:
            # In this order: the mode is around the forward from here on.
            self.microbenchmark, self.recording = microbenchmark, microbenchmark.record()

    def has_lost(self, thread: int) -> bool:
        """Another thread than the loop's calls a root: whether the loop's has ended, or gone silent."""
        self.foreign += 1
        if _in_backward() or (not self._is_silent() and threads.is_alive(thread)):
            return False
        self.foreign = 0
        return True

    def _is_silent(self) -> bool:
        if self.foreign < _LOST:
            return False
        return not self.is_watched() or _clock() - self.entered_ns > _PATIENCE_NS

    def left(self, ident: int, module, has_parameters: bool, eval_with_grad: bool) -> None:
        """It returned."""
        if self.recording is not None and self.recording.thread == ident:
            recording, self.recording = self.recording, None
            self.microbenchmark.recorded(recording, module)
        entry = self.inside.pop(ident, None)
        if entry is None or not has_parameters:
            return
        began, others, number, cpu, delay = entry
        seen = self.seen
        together = others > 0 or self.begun > number
        if delay is not None:
            spent = _delay() - delay, _cpu_clock() - cpu
            wall = _clock() - began
            total = seen.together if together else seen.alone
            total[0] += 1
            total[1] += wall
            total[2] += spent[1]
            total[3] += spent[0]
            self.waiting = self._waiters()
            self.waited += self.waiting
            seen.waiters += self.waiting
            seen.backlog.look(3)
            if not seen.least_cpu_ns or spent[1] < seen.least_cpu_ns:
                seen.least_cpu_ns = spent[1]
        else:
            wall = _clock() - began
        seen.calls += 1
        seen.busy_ns += wall
        seen.others += others
        seen.threads.add(ident)
        if seen.modules.setdefault(id(module), ident) != ident:
            seen.modules[id(module)] = 0
        if together:
            seen.overlapped += 1
            self.overlaps += 1
            if module.training:
                seen.in_training += _is_moody(module, seen.moody)
        if eval_with_grad:
            seen.eval_with_grad[0] += 1
            seen.eval_with_grad[1] += wall

    def _waiters(self) -> int:
        """A thread of an idle pool stands in a queue's code; one that waits for the caller's lock, in the caller's."""
        frame = users_frame(sys._getframe(4), self.sites.is_library)
        if frame is None:
            return 0
        known = self.seen.threads
        return sum(
            other.f_code is frame.f_code
            for ident, other in sys._current_frames().items()
            if ident in known and ident not in self.inside and other is not frame
        )

    def failed(self, ident: int) -> None:
        """It raised."""
        if self.recording is not None and self.recording.thread == ident:
            self.recording.stop()
            self.recording = None
        self.inside.pop(ident, None)

    # -- on the loop's thread, between steps --------------------------------------------------------------

    def flush(self, step: int) -> None:
        """Queue what was seen since the last record."""
        if not self.on:
            return
        seen, self.seen = self.seen, _Seen()
        self.stride = 1 + seen.calls // _MEASURED
        if not seen.calls and not seen.backwards:
            return
        shared = sum(1 for ident in seen.modules.values() if ident == 0)
        self.recorder.record(
            "concurrency",
            step=step,
            us=(_clock() - seen.began_ns) // 1000,
            threads=len(seen.threads),
            shared=shared,
            calls=seen.calls,
            overlapped=seen.overlapped,
            others=seen.others,
            busy_us=seen.busy_ns // 1000,
            alone=_microseconds(seen.alone),
            together=_microseconds(seen.together),
            least_cpu_us=seen.least_cpu_ns // 1000,
            waiters=seen.waiters,
            backlog=seen.backlog.mean(),
            in_training=seen.in_training,
            eval_with_grad=seen.eval_with_grad[0],
            eval_with_grad_us=seen.eval_with_grad[1] // 1000,
            backwards=seen.backwards,
            site=self.site,
        )


def _in_backward() -> bool:
    """Whether this thread runs a backward pass, in which checkpointed forwards are run again."""
    return torch._C._current_graph_task_id() >= 0


def _is_moody(module, known: "dict[int, bool]") -> bool:
    """Whether training mode makes the module draw random numbers or change its own buffers."""
    moody = known.get(id(module))
    if moody is None:
        moody = known[id(module)] = any(isinstance(part, (_BatchNorm, _DropoutNd)) for part in module.modules())
    return moody


def _microseconds(measured: "list[int]") -> "list[int]":
    return [measured[0], *(ns // 1000 for ns in measured[1:])]
