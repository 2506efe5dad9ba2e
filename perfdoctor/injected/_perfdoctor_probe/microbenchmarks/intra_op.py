"""What the job's largest operators take with other numbers of intra-op threads: timed here, round by round.

A round lies half a second or more after the last, because a busy neighbour comes and goes. The number of threads
that the job had is restored; the operators are those of `microbenchmark`, on tensors of their own, so neither results
nor random numbers of the job change.
"""

import os
import time

import torch

from .. import affinity
from ..rows import milliseconds
from . import replay

_ROUND_MS = 6.0
"""Operators are chosen, the largest first, until one of each takes this long."""
_OPS = 6
_ROUNDS = 10
_FEW = (2, 4)
"""Threads that small operators may gain from where as many as there are CPUs would hold each other up."""
_PAUSE_NS = 500_000_000
_SHARE = 25
"""A round waits until 25 times what the last took has passed: with spinning threads beside a busy neighbour an
operator can take a second."""

_set_threads = torch._C.set_num_threads
"""Not torch's name for it, by which the job's own calls are noted with their lines."""


class ThreadMicrobenchmark:
    """The operators, the numbers of threads to try, and when the next round is due."""

    def __init__(self, ops: list, arguments: list) -> None:
        """`ops` and `arguments` as for `FinalMicrobenchmark`."""
        self.threads = torch.get_num_threads()
        self.counts = counts(self.threads)
        self.calls = _chosen(ops, arguments) if len(self.counts) > 1 else []
        self.left = _ROUNDS if self.calls else 0
        self.due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether a round may be taken now; never again once the job has changed its number of threads."""
        return self.left > 0 and now_ns >= self.due_ns and replay.alone()

    def round(self) -> "dict | None":
        """A `ThreadTiming` for each number; None for the first round, which starts threads and loads kernels."""
        first = self.left == _ROUNDS
        self.left -= 1
        if torch.get_num_threads() != self.threads:
            self.left = 0
            return None
        began = time.perf_counter_ns()
        found = []
        try:
            with torch.no_grad():
                for count in self.counts:
                    _set_threads(count)
                    found.append({"threads": count, "milliseconds": _weighted_ms(self.calls)})
        finally:
            _set_threads(self.threads)
        now = time.perf_counter_ns()
        self.due_ns = now + (0 if first else max(_PAUSE_NS, _SHARE * (now - began)))
        return None if first else {"timings": found}


def counts(threads: int) -> "list[int]":
    """Numbers of threads to try in a job that has so many: one, today's and those that it may want."""
    return sorted({1, threads, *_wanted(threads)})


def _wanted(threads: int) -> "set[int]":
    """As many as there are CPUs for this rank, and a few of them where the job has fewer: the launcher says how many
    there are (it knows the quota)."""
    try:
        cpus = float(os.environ["PERFDOCTOR_CPUS"])
    except (KeyError, ValueError):
        cpus = len(affinity.cpus())
    usable = max(1, int(cpus / max(1, int(os.environ.get("LOCAL_WORLD_SIZE", 1)))))
    return {usable, *(few for few in _FEW if threads < few < usable)}


def _chosen(ops: list, arguments: list) -> list:
    """(call, weight) for the largest that can be replayed."""
    chosen, total_ms = [], 0.0
    for op, (name, shapes, types, concrete) in zip(ops, arguments):
        if len(chosen) == _OPS or total_ms > _ROUND_MS:
            break
        if not replay.replayable(name, shapes):
            continue
        try:
            call = replay.prepared(name, shapes, types, concrete)
            with torch.no_grad():
                call()
        except Exception:  # not replayable with plain arguments
            continue
        chosen.append((call, op["calls_per_step"]))
        total_ms += replay.call_ms(op)
    return chosen


def _weighted_ms(calls: list) -> float:
    """Milliseconds of one call of each, weighted by how often a step makes them; the second of two, warm."""
    spent = 0.0
    for call, weight in calls:
        call()
        began = time.perf_counter_ns()
        call()
        spent += weight * (time.perf_counter_ns() - began)
    return milliseconds(spent)
