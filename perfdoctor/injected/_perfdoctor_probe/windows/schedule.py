"""When to look closer: short windows of a step or two, opened and closed at step boundaries.

The steps of a window, and the one after it, are marked so that no statistic uses them. The probe opens each
planned window once on its own, early enough for a short job; the launcher may ask for more.
"""

import time
from _thread import get_ident

from .. import threads
from .own_work import OwnWork

FIRST_STEP = 10
"""Steps before the first window, so that lazy initialisation is over ..."""
SLOW_FIRST_STEP = 3
SLOW_NS = 5_000_000_000
"""... or three of them, once five seconds have gone by since the first."""
GAP = 3
"""Steps between windows."""
STEPS = 2
LONG_NS = 5_000_000
"""Steps of one window; one, when a step is longer than this: an operator costs the window about 20 us (12 for the
profiler to sort out, 6 to sum up), 0.2 s for a step of 12,000 of them."""
_ATTEMPTS = 3
"""A window that had to be given up is tried again this often: a loop that forks in every step has no room for one."""


class Windows:
    """The plan of windows and the one that is open."""

    def __init__(self, recorder, make, fault, plan: "list[str]") -> None:
        self.recorder = recorder
        self.make = make
        self.fault = fault
        self.planned = tuple(plan)
        self.reset()

    def reset(self) -> None:
        self.plan = list(self.planned)
        self.open = None
        self.first_step = FIRST_STEP
        self.thread = 0
        self.opened_step = 0
        self.last_step = 0
        self.first_ns = 0
        self.marked: "list[int]" = []
        self.left_behind: "tuple[int, object] | None" = None
        """A thread that the loop has left, and the window that waits there for its next forward pass."""
        self.own = OwnWork()
        self.length = STEPS
        self.cycle = 1
        """Steps after which the loop does the same again: a window holds all of them."""
        self.appointed: "list[str]" = []
        """Windows that are to see steps which come again, one after the other ..."""
        self.due = (0, 0)
        """... with the number of the next such step, and how many steps later another one comes."""
        self.attempts: "dict[str, int]" = {}
        self.microbenchmark = self.final_microbenchmark = None
        self.unused_gradients = None
        """What a window found that another one is to look at."""
        self.of_samples: "tuple | None" = None
        """What one found that every epoch computes again, and who says whether it still does."""
        self._note_busy()

    def _note_busy(self) -> None:
        self.busy = self.open is not None or bool(self.plan) or bool(self.appointed)
        """Whether the next boundary must look at the windows."""
        self.watches = self.open is not None
        """Whether one is open, or opens."""

    def replan(self, step: int) -> None:
        """From here on steps are other than those that the windows saw (a first evaluation, the acting before an
        agent learns, all of a cycle): look again, at these."""
        self.abandon(step, "", again=True)
        if self.open is None:
            self.plan = list(self.planned)
            self.first_step, self.first_ns = step + FIRST_STEP, 0
            self.microbenchmark = self.final_microbenchmark = self.of_samples = None
            self.attempts.clear()
        self._note_busy()

    def ask(self, name: str, first: bool = False) -> None:
        """Add a window to the plan. `first`: before what is planned, for which the launcher waits."""
        self.plan.insert(0 if first else len(self.plan), name)
        self._note_busy()

    def appoint(self, names: "list[str]", at: int, length: int) -> None:
        """Have them see the steps that come `length` after the step `at`, and as many after those, each until it is
        done."""
        self.appointed, self.due = list(names), (at + length, length)
        self._note_busy()

    def open_within(self, name: str, step: int) -> None:
        """Open one in the middle of `step`, or at its beginning: at its end it closes."""
        self.plan.insert(0, name)
        self._open(step, 0)
        self._note_busy()

    def at_boundary(self, step: int, wall_ns: int) -> bool:
        """Open or close what is due. True when it did, so that the time it took is left out of the step."""
        now = time.perf_counter_ns()
        if self.open is not None:
            self.marked.append(step - 1)
            if self._has_lost_its_thread():
                return False
            if step - self.opened_step < self.length or not self._may_close():
                return False
            stays = getattr(self.open, "stays", None)
            if stays is not None and stays(step - self.opened_step):
                return False
            began = self.own.begin()
            self._close(step)
            self.marked.append(step)
            self.own.end(began)
            return True
        if not self.first_ns:
            self.first_ns = now
        if self._is_appointed(step):
            began = self.own.begin()
            self.open_within(self.appointed[0], step)
            if self.open is None:
                del self.appointed[0]
                self._note_busy()
            self.own.end(began)
            return True
        late = step >= self.first_step - FIRST_STEP + SLOW_FIRST_STEP and now - self.first_ns > SLOW_NS
        if not self.plan or (step < self.first_step and not late) or step < self.last_step + GAP:
            return False
        began = self.own.begin()
        self._open(step, wall_ns)
        self._note_busy()
        self.own.end(began)
        return True

    def _has_lost_its_thread(self) -> bool:
        """Whether the loop's thread is another one now, or has ended; then no window is open any more."""
        window, stayed = self.open, self.thread == get_ident()
        gone = window.is_gone() if stayed else not threads.is_alive(self.thread)
        if not gone and (stayed or getattr(window, "on_any_thread", False)):
            return False
        if not gone:
            self.left_behind = self.thread, window
        why = "the thread that the loop ran on has ended" if gone else "the loop went on in another thread"
        self.open = None
        self._missing(window.name, why)
        self._note_busy()
        return True

    def leave_behind(self, thread: int) -> None:
        """A forward pass has ended on `thread`, which is not the loop's: leave what still watches that."""
        if self.left_behind is None or self.left_behind[0] != thread:
            return
        window = self.left_behind[1]
        if window.closable():
            self.left_behind = None
            window.abandon()

    def _is_appointed(self, step: int) -> bool:
        if not self.appointed:
            return False
        at, length = self.due
        if step > at:  # this one is over, or another window was open
            at += length * -(-(step - at) // length)
            self.due = at, length
        return step == at

    def _open(self, step: int, wall_ns: int) -> None:
        self.watches = True
        name = self.plan.pop(0)
        self.length = 1 if wall_ns > LONG_NS else STEPS
        try:
            window = self.make(name)
            obstacle = window.obstacle()
            if obstacle:
                self._missing(name, obstacle)
                return
            window.open()
        except Exception as error:
            self.fault(f"window {name}", error)
            return
        self.open = window
        self.length = getattr(window, "steps", self.cycle if self.cycle > 1 else self.length)
        self.thread = get_ident()
        self.opened_step = step

    def _may_close(self) -> bool:
        """Most windows are left on the thread that entered them; the loop may have moved to another one."""
        here = self.thread == get_ident() or getattr(self.open, "on_any_thread", False)
        return here and self.open.closable()

    def _missing(self, name: str, why: str) -> None:
        self.recorder.record("window", name=name, missing=why)

    def _close(self, step: int) -> None:
        window, self.open = self.open, None
        self.last_step = step
        self._note_busy()
        try:
            record = window.close(step - self.opened_step)
        except Exception as error:
            self.fault(f"window {window.name}", error)
            return
        if window.name in self.appointed and window.is_done:
            self.appointed.remove(window.name)
        self.microbenchmark = window.microbenchmark or self.microbenchmark
        self.final_microbenchmark = window.final_microbenchmark or self.final_microbenchmark
        self.unused_gradients = getattr(window, "unused_gradients", None)
        self.of_samples = getattr(window, "of_samples", None) or self.of_samples
        # Before what is planned: the launcher waits for that, and not for these.
        self.plan[:0] = getattr(window, "asks", ())
        self._note_busy()
        self.recorder.record("window", name=window.name, first_step=self.opened_step, **record)

    def time_threads(self, step: int) -> None:
        """Take a round of thread microbenchmark if one is due: between steps, like the windows themselves."""
        self.take_round("threads", self.microbenchmark, step)

    def take_round(self, kind: str, microbenchmark, step: int) -> None:
        """Take a round of it, if there is one and it is due, and record what it says."""
        if microbenchmark is None or not microbenchmark.is_due(time.perf_counter_ns()):
            return
        began = self.own.begin()
        timings = microbenchmark.round()
        if timings:
            self.recorder.record(kind, step=step, **timings)
        self.marked.append(step)
        self.own.end(began)

    def time_finally(self, may_call: bool) -> None:
        """After the last step: take the timings that wait for it, once. `may_call` as for `FinalMicrobenchmark`."""
        if self.of_samples is not None and self.of_samples[0]():
            self.recorder.record("of_samples", **self.of_samples[1])
        waiting, self.final_microbenchmark = self.final_microbenchmark, None
        timings = waiting.timings(may_call) if waiting is not None else None
        if timings:
            self.recorder.record("timings", **timings)
            self.recorder.flush()

    def abandon(self, step: int, why: str, again: bool) -> None:
        """Close in the middle of a step, without a record where the window needs all of it. On another thread than the
        window's: do nothing."""
        window = self.open
        if window is None or not self._may_close():
            return
        if getattr(window, "may_close_early", False):
            self.marked += [step, step + 1]
            self._close(step)
            return
        self.open = None
        self.last_step = step
        self.marked += [step, step + 1]
        try:
            window.abandon()
        except Exception as error:
            self.fault(f"window {window.name}", error)
            return
        attempts = self.attempts[window.name] = self.attempts.get(window.name, 0) + 1
        if again and attempts < _ATTEMPTS and not getattr(window, "within_a_step", False):
            self.plan.insert(0, window.name)
        else:
            self._missing(window.name, why)
        self._note_busy()
