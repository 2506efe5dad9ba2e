"""The window of locks: steps in which a thread of ours looks, some hundred times, which threads wait for a lock, and
which ask without end whether there is something to do, and for whose pauses everybody waits.

Only where another thread than the loop's runs the user's code. A look takes 20 to 60 us with the interpreter lock held.
"""

import _thread
import random
import sys
import threading
import time

from ..rows import rounded
from ..sites import users_frame
from .locks import Locks
from .pauses import Pauses
from .polling import Polling
from .stacks import waits

_LOOKS = 120
"""A share of one half is known to 5 points then, were each look independent."""
_MEAN_S = 0.005
_LONGEST_S = 2.0


class LockWaitsWindow:
    """Opened at one step boundary, closed at another."""

    name = "locks"
    microbenchmark = final_microbenchmark = None
    on_any_thread = True
    """It can be closed on another thread than it was opened on."""

    def __init__(self, sites, loop, fault) -> None:
        self.sites = sites
        self.loop = loop
        self.fault = fault
        self.locks = Locks(sites.is_library)
        self.polling = Polling(sites.is_library)
        self.pauses = Pauses(sites.is_library, loop.thread)
        self.random = random.Random(0)
        self.over = False
        self.looks = self.loop_waits = 0
        self.found: "dict[tuple, int]" = {}
        """(by the loop's thread, code, line, code and line of who held it, the lock's name) -> looks."""

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        others = set(threading._active) - {_thread.get_ident()}
        frames = sys._current_frames()
        running = (frames[ident] for ident in others if ident in frames)
        alone = all(users_frame(frame, self.sites.is_library) is None for frame in running)
        return "no other thread runs the job's own code" if alone else ""

    def open(self) -> None:
        self.until = time.monotonic() + _LONGEST_S
        self.polling.begin()
        self.pauses.begin()
        # None of `threading`'s: the job counts as many as before.
        _thread.start_new_thread(self._run, ())

    def stays(self, steps: int) -> bool:
        """Until there are enough looks."""
        return not self.over and self.looks < _LOOKS and time.monotonic() < self.until

    def closable(self) -> bool:
        """Always: nothing of it is around the job's code."""
        return True

    def is_gone(self) -> bool:
        """Never, as it is on a thread of its own."""
        return False

    def abandon(self) -> None:
        """Look no more."""
        self.over = True
        self.pauses.end()

    def close(self, steps: int) -> dict:
        """Look no more; who waited."""
        self.abandon()
        looks = max(1, self.looks)
        rows = sorted(self.found.items(), key=lambda item: -item[1])
        return {
            "looks": self.looks,
            "loop_waits": rounded(self.loop_waits / looks),
            "busy": self.polling.rows(self.sites),
            "all_wait": rounded(self.pauses.looks[True] / looks),
            "pauses": self.pauses.rows(self.sites, self.looks),
            "rows": [
                {
                    "site": self.sites.at(code, line),
                    "held_at": self.sites.at(held, held_line),
                    "lock": name,
                    "by_loop": by_loop,
                    "threads": rounded(count / looks),
                }
                for (by_loop, code, line, held, held_line, name), count in rows
            ],
        }

    # -- on our own thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.over and time.monotonic() < self.until:
                time.sleep(_MEAN_S * self.random.uniform(0.5, 1.5))
                if not self.over:
                    self._look()
        except Exception as error:
            self.abandon()
            self.fault("window locks", error)

    def _look(self) -> None:
        lead, known = self.loop.thread, threading._active
        frames = {ident: frame for ident, frame in sys._current_frames().items() if ident in known or ident == lead}
        if lead not in frames:
            return
        idle = waits(frames[lead])
        for ident, *where in self.locks.waiting(frames):
            idle |= ident == lead
            row = (ident == lead, *where)
            self.found[row] = self.found.get(row, 0) + 1
        self.polling.look(frames, lead)
        self.pauses.look(frames, lead, idle)
        self.loop_waits += idle
        self.looks += 1
