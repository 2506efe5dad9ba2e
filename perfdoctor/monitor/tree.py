"""What the job's process tree used between two moments.

Processes come and go between samples. CPU time of a child that was waited for is in its parent's counters
(`children_ticks`), so the sum over the tree stays right when it vanishes: its last known time is taken off the parent's
growth. Lost is only the last piece, since the previous reading, of a process whose parent is outside the tree (the root
itself, an orphan reaped by init) or ignores SIGCHLD.

A process is ours when it descends from the root, when it did so once (orphans keep belonging to us), or when
the leader of its session or process group is one of ours: that finds the child of a parent that lived too
briefly to be seen. Ranks under torchrun lead sessions of their own. Ours are also those that have said so themselves:
an engine that runs already starts them, such as a worker of Spark's, and they descend from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..recording.host import JobSample, OwnProcess
from .processes import PAGE_BYTES, TICKS_PER_SECOND, ProcessStat, read_stat, read_text

AWAKE = 0.9
"""Of an interval, in which one thread ran or wanted to: what polls without a pause does for all of it, what waits for
its next task does not."""

BUSY = 0.1
"""Cores, from which on a process is listed that also sleeps."""


@dataclass(slots=True)
class _Member:
    stat: ProcessStat
    rss_bytes: int = 0
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Thread -> time on a CPU, time runnable without one, nanoseconds since its start."""
    children: tuple[int, ...] = ()


class JobTree:
    """The processes that descend from one, and their counters at the last reading."""

    def __init__(self, root_pid: int) -> None:
        root = _read_member(root_pid)
        self._members: dict[int, _Member] = {} if root is None else {root_pid: root}
        self._ever: set[int] = {root_pid}
        """Every pid that was ours once."""
        self._read_ns = time.perf_counter_ns()
        self._read_ticks = _ticks_since_boot()
        self.lists_children = Path(f"/proc/self/task/{os.getpid()}/children").exists()
        """Whether the kernel lists children (CONFIG_PROC_CHILDREN). Otherwise each reading needs a scan."""
        self.read()

    @property
    def pids(self) -> frozenset[int]:
        """The processes that lived at the last reading."""
        return frozenset(self._members)

    def read(self, scan: Iterable[ProcessStat] = (), others: Iterable[int] = ()) -> JobSample:
        """What was used since the last call. `scan`, of all processes, finds orphans never seen before. `others`:
        processes that are ours too, wherever they descend from."""
        now_ns, now_ticks = time.perf_counter_ns(), _ticks_since_boot()
        members = self._walk(others)
        self._adopt(scan, members)
        before, self._members = self._members, members
        self._ever.update(members)
        # A pid of another process by now is a death too.
        gone = {pid: old for pid, old in before.items() if not _same(old, members.get(pid))}
        absorbed = _by_living_ancestor(gone, members)

        passed_ns = max(1, now_ns - self._read_ns)
        ticks = run_ns = delay_ns = 0
        busy: list[OwnProcess] = []
        for pid, member in members.items():
            base = self._base(before.get(pid), member)
            ticks += _ticks_grown(base, member, absorbed.get(pid, ()))
            ran = [
                (max(0, run - base.threads[thread][0]), max(0, delay - base.threads[thread][1]))
                for thread, (run, delay) in member.threads.items()
                if thread in base.threads
            ]
            run_ns += sum(run for run, _ in ran)
            delay_ns += sum(delay for _, delay in ran)
            awake = any(run + delay >= AWAKE * passed_ns for run, delay in ran)
            cpus = round(sum(run for run, _ in ran) / passed_ns, 4)
            if awake or cpus >= BUSY:
                busy.append(OwnProcess(pid, member.stat.name, cpus, awake))

        per_core = passed_ns / 1e9 * TICKS_PER_SECOND
        self._read_ns, self._read_ticks = now_ns, now_ticks
        # All zero where the kernel keeps no schedstats.
        has_schedstat = any(run for member in members.values() for run, _ in member.threads.values())
        return JobSample(
            cpus=round(ticks / per_core, 4),
            rss_bytes=sum(member.rss_bytes for member in members.values()),
            run_ns=run_ns if has_schedstat else None,
            run_delay_ns=delay_ns if has_schedstat else None,
            busy=tuple(busy),
        )

    def _walk(self, others: Iterable[int]) -> dict[int, _Member]:
        """Known processes that still live, and all that descends from them."""
        members: dict[int, _Member] = {}
        queue = [*others, *self._members]
        while queue:
            pid = queue.pop()
            if pid in members:
                continue
            known = self._members.get(pid)
            member = _read_member(pid)
            if member is None:
                continue
            # A known number with another start is somebody else's, unless its parent is ours: then it was a child.
            if known is not None and not _same(known, member) and member.stat.parent not in self._ever:
                continue
            members[pid] = member
            queue.extend(child for child in member.children if child not in members)
        return members

    def _adopt(self, scan: Iterable[ProcessStat], members: dict[int, _Member]) -> None:
        """Adds processes of the scan that are ours by parent, session or group. The scan is oldest first."""
        for stat in scan:
            if stat.pid in members or stat.pid == os.getpid():
                continue
            if stat.parent in members or stat.session in self._ever or stat.group in self._ever:
                member = _read_member(stat.pid)
                if member is not None and member.stat.start == stat.start:
                    members[stat.pid] = member
                    self._ever.add(stat.pid)

    def _base(self, known: _Member | None, member: _Member) -> _Member:
        """What to count from: the last reading, birth, or now for an older process found only now."""
        if known is not None and _same(known, member):
            return known
        if member.stat.start >= self._read_ticks - 1:
            return _Member(replace(member.stat, ticks=0, children_ticks=0))
        return member


def _read_member(pid: int) -> _Member | None:
    stat = read_stat(pid)
    if stat is None:
        return None
    member = _Member(stat)
    with contextlib.suppress(OSError, IndexError, ValueError):  # a zombie has none
        # Fields of statm: size, resident, ..., in pages.
        member.rss_bytes = int(read_text(f"/proc/{pid}/statm").split()[1]) * PAGE_BYTES
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return member
    children: list[int] = []
    for thread in threads:
        path = f"/proc/{pid}/task/{thread}"
        with contextlib.suppress(OSError, IndexError, ValueError):
            # Fields: time on a CPU, time runnable without one (both ns), time slices. sched-stats.rst.
            fields = read_text(path + "/schedstat").split()
            member.threads[int(thread)] = (int(fields[0]), int(fields[1]))
        with contextlib.suppress(OSError, ValueError):
            # Per thread, because any of them may have started a process.
            children.extend(map(int, read_text(path + "/children").split()))
    member.children = tuple(children)
    return member


def _same(one: _Member, other: _Member | None) -> bool:
    return other is not None and one.stat.start == other.stat.start


def _by_living_ancestor(gone: dict[int, _Member], members: dict[int, _Member]) -> dict[int, list[_Member]]:
    """The vanished, under the nearest ancestor that lives: that is where their counters went."""
    absorbed: dict[int, list[_Member]] = {}
    for member in gone.values():
        parent, steps = member.stat.parent, 0
        while parent not in members and parent in gone and steps < len(gone):
            parent, steps = gone[parent].stat.parent, steps + 1
        if parent in members:
            absorbed.setdefault(parent, []).append(member)
    return absorbed


def _ticks_grown(base: _Member, member: _Member, absorbed: Iterable[_Member]) -> int:
    """Ticks beyond `base`, less what was counted of the vanished before."""
    children = member.stat.children_ticks - base.stat.children_ticks
    children -= sum(dead.stat.ticks + dead.stat.children_ticks for dead in absorbed)
    return max(0, member.stat.ticks - base.stat.ticks) + max(0, children)


def _ticks_since_boot() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_SECOND)
