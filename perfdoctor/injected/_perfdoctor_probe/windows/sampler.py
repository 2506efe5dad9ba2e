"""Samples of Python stacks while the job runs, for `perfdoctor profile`: by step, part of the step and thread.

A thread of ours wakes 50 times a second and walks the stacks of all others. What a library does in native code is
the time of the Python line that called it, since that line is where the stack stands meanwhile. It needs no permission
(py-spy needs ptrace, which containers and shared machines refuse, and stops the job for every stack), and costs nothing
between samples (a profile function, as pyinstrument sets, slows every call: steps of 3 and 23 ms took 21 % longer).
And it runs where the parts of the step are known.

The price is the GIL. It is asked for at a moment chosen at random, and had when the job lets go of it: at once in an
operator, else when the interpreter's switch interval is over. With the usual 5 ms every sample of short stretches of
Python would fall upon the next operator. So the interval is 5 us while no other thread of the job competes for the GIL,
where it is felt by us alone, and the job's own as soon as one does. What is left of the
error shows beside `benchmarks/jobs/known_split.py`, which times its own lines (docs/profile.md).
"""

import _thread
import ctypes
import random
import sys
import threading
import time

from ..timeline import BACKWARD, INPUT
from .stacks import Stacks, waits

MEAN_NS = 20_000_000
"""Between two samples, on average: waking us costs the job up to half a millisecond on a virtual machine, for the GIL
changes hands twice and a sleeping CPU is slow to come back; of 20 ms that is 2.5 %."""
_SWITCH_S = 5e-6
_PR_SET_TIMERSLACK = 29
_clock = time.perf_counter_ns


class Sampler:
    """One per process, from `start` to `end`."""

    def __init__(self, recorder, sites, loop, windows, fault) -> None:
        self.loop = loop
        self.windows = windows
        self.fault = fault
        self.stacks = Stacks(recorder, sites)
        self.is_worker = False
        """Whether this process makes batches: it has no steps, and all of its work is `input_wait`."""
        self.away = False
        """While the training thread does work of ours."""
        self.over = False
        self.jobs_s = self.set_s = sys.getswitchinterval()
        """The switch interval of the job, and the one in force: where another is, the job has set it, and it stays."""
        self.crowded = False
        """Whether another thread than the one that trains has moved since the sample before."""
        self.seen: dict = {}
        """Where each thread stood at the last sample."""
        self.random = random.Random(0)

    def start(self, worker: bool = False) -> None:
        """Sample from here on. The thread is none of `threading`'s: the job counts as many as before."""
        self.is_worker = worker
        self.home = _thread.get_ident()
        _thread.start_new_thread(self._run, ())

    def end(self) -> None:
        """No more samples; the interpreter is as the job has it."""
        self.over = True
        self._hurry(False)

    def flush(self) -> None:
        """Queue what was seen since the last call. Called by the thread that has the recorder."""
        self.stacks.flush()

    # -- on our own thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            _wake_in_time()
            due = _clock() + self._pause()
            while not self.over:
                self._hurry(not self.crowded)
                time.sleep(max(0, due - _clock()) / 1e9)
                # At once: a thread that waits for us must not have the GIL back while we walk its stack.
                self._hurry(False)
                now = _clock()
                weight = 0
                # One for every moment that has passed: a call that kept the GIL for long has as many as it deserves.
                while due <= now:
                    weight += 1
                    due += self._pause()
                if weight and not self.over:
                    self._take(weight)
        except Exception as error:
            self.over = True
            self.fault("sampler", error)

    def _pause(self) -> int:
        """At random, so that no rhythm of the job's is met again and again."""
        return int(MEAN_NS * self.random.uniform(0.5, 1.5))

    def _take(self, weight: int) -> None:
        frames = sys._current_frames()
        frames.pop(_thread.get_ident(), None)
        moved = {ident: (id(frame), frame.f_lasti) for ident, frame in frames.items()}
        lead = self.home if self.is_worker else self.loop.thread
        self.crowded = any(self.seen.get(ident, place) != place for ident, place in moved.items() if ident != lead)
        self.seen = moved
        if self.away or self.windows.open is not None or lead not in frames:
            return
        line = self.loop.timeline
        step, part = (-1, INPUT) if self.is_worker else (line.step, line.stack[-1])
        for ident, frame in frames.items():
            if ident == lead and not (self.is_worker and waits(frame)):
                below = self._autograd(frames, lead) if part == BACKWARD else None
                self.stacks.add(step, part, "", frame, weight, below)
            elif ident in threading._active and not waits(frame):
                self.stacks.add(step, part, threading._active[ident].name, frame, weight)

    def _autograd(self, frames: dict, lead: int):
        """Of an autograd thread, which works for the backward pass that the training thread waits in: the innermost
        frame; None where none runs Python. torch starts them, so that `threading` does not know them."""
        return next(
            (frame for ident, frame in frames.items() if ident != lead and ident not in threading._active), None
        )

    def _hurry(self, wanted: bool) -> None:
        if sys.getswitchinterval() == self.set_s:
            sys.setswitchinterval(_SWITCH_S if wanted else self.jobs_s)
            self.set_s = sys.getswitchinterval()


def _wake_in_time() -> None:
    """Have the kernel wake this thread when it is due, and not up to 50 us later together with others."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    except (AttributeError, OSError):
        pass
