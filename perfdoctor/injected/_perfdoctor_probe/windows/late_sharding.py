"""One batch of a data-loader worker: how long its generators make samples before they keep the worker's share of them.

Only the lines of generators that keep a share are timed, with all that they call; of all other functions Python tells
the call, which takes 0.3 us.
"""

import inspect
import itertools
import sys
import time

from torch.utils.data import get_worker_info

from ..rows import rounded
from .share_lines import Keeping, keepings, value

_clock = time.perf_counter_ns


class LateSharding:
    """Runs from `begin` to `end`, on the thread of both."""

    def __init__(self, sites) -> None:
        self.sites = sites
        self.info = get_worker_info()
        self.known: "dict[object, list[Keeping]]" = {}
        """By code."""
        self.spent: "dict[tuple, int]" = {}
        """Nanoseconds by code and line, with what the line calls."""
        self.running: "dict[int, tuple[int, int]]" = {}
        """By id() of frames that run or wait for what they called: their line, and since when."""
        self.kept: "dict[tuple[object, Keeping], list]" = {}
        """Samples, the number of the own share and that of all shares; these None where they are not known."""
        self.began_ns = self.wall_ns = self.lost_ns = 0
        """The last: of ours, reading source."""
        # One object each, to be known by identity.
        self.entered, self.moved = self._entered, self._moved

    def begin(self) -> None:
        """A batch is about to be made; one before may have come to the end of the samples instead."""
        for known in (self.spent, self.running, self.kept):
            known.clear()
        self.began_ns = self._now()
        sys.settrace(self.entered)

    def end(self) -> dict:
        """It is made: the record. A job that has begun to trace meanwhile goes on."""
        if sys.gettrace() is self.entered:
            sys.settrace(None)
        self.wall_ns = self._now() - self.began_ns
        rows = [self._row(code, keeping, *kept) for (code, keeping), kept in self.kept.items() if self._is_own(*kept)]
        return {"kind": "late_sharding", "rows": rows}

    def _row(self, code, keeping: Keeping, samples: int, mine: int, shards: int) -> dict:
        made_ns = sum(ns for (of, line), ns in self.spent.items() if of is code and keeping.makes_at(line))
        return {
            "site": self.sites.at(code, keeping.line),
            "samples": samples,
            "share_number": mine,
            "shards": shards,
            "share": rounded(min(1.0, made_ns / self.wall_ns)),
        }

    def _is_own(self, samples: int, mine: "int | None", shards: "int | None") -> bool:
        """Whether samples are divided among the workers so, be it with those of other ranks; every second one may be
        meant for any other reason."""
        workers = self.info.num_workers if self.info is not None else 1
        if type(mine) is not int or type(shards) is not int or workers < 2 or shards < 2 or shards % workers:
            return False
        return self.info.id in (mine % workers, mine // (shards // workers))

    # -- what Python tells --------------------------------------------------------------------------------

    def _entered(self, frame, event, arg):
        code = frame.f_code
        found = self.known.get(code)
        if found is None:
            began = _clock()
            found = self.known[code] = self._keepings(code)
            self.lost_ns += _clock() - began
        if not found:
            if frame.f_trace is not None:  # the line clock of an earlier batch
                frame.f_trace = None
            return None
        self.running[id(frame)] = frame.f_lineno, self._now()
        return self.moved

    def _moved(self, frame, event, arg):
        now, code = self._now(), frame.f_code
        line, since = self.running.get(id(frame), (frame.f_lineno, now))
        self.spent[code, line] = self.spent.get((code, line), 0) + now - since
        if event != "return":
            self.running[id(frame)] = frame.f_lineno, self._now()
            return self.moved
        self.running.pop(id(frame), None)
        frame.f_trace = None
        if arg is not None:  # it yields
            for keeping in self.known[code]:
                if keeping.keeps_at(line):
                    kept = self.kept.get((code, keeping))
                    if kept is None:
                        kept = self.kept[code, keeping] = [0, *self._share(keeping, frame)]
                    kept[0] += 1
        return None

    def _now(self) -> int:
        return _clock() - self.lost_ns

    def _keepings(self, code) -> "list[Keeping]":
        if not code.co_flags & inspect.CO_GENERATOR or self.sites.is_library(code.co_filename):
            return []
        try:
            return keepings(code)
        except Exception:  # source of an exotic kind: nothing is known of it
            return []

    @staticmethod
    def _share(keeping: Keeping, frame) -> tuple:
        """The number of the own share, and that of all."""
        try:
            if keeping.slicing is None or value(keeping.slicing, frame) is itertools.islice:
                return value(keeping.mine, frame), value(keeping.shards, frame)
        except Exception:  # it is told by what we cannot ask for without running the job's code
            pass
        return None, None
