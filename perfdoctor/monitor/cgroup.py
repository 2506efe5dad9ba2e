"""What the control groups allow a process and what they took from it, in v1, v2 and hybrid layouts.

A limit may sit on any ancestor, so every question walks from the process's group up to the mount's root. The
group is looked up per controller in `/proc/<pid>/cgroup`: under a hybrid layout the CPU controller may be v1
while a v2 tree without controllers is mounted beside it. The mounts are our own (`/proc/self/mountinfo`),
because it is we who read the files.

Kernel documentation: admin-guide/cgroup-v2.rst, admin-guide/cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ..recording.host import Throttling
from .processes import read_or_none

T = TypeVar("T")

NO_LIMIT_BYTES = 1 << 60
"""v1 shows "no limit" as the largest multiple of a page below 2^63; no machine has an exbibyte."""


@dataclass(frozen=True, slots=True)
class _Mount:
    point: Path
    root: PurePosixPath
    """The part of the hierarchy that the mount shows."""
    controllers: frozenset[str]
    unified: bool


@dataclass(frozen=True, slots=True)
class _Level:
    path: Path
    unified: bool

    def read(self, name: str) -> str | None:
        return read_or_none(self.path / name)


class Cgroups:
    """The groups of processes, seen through the mounts at the time this was made.

    `pid=None` is the calling process. Once a process is gone, its last known groups answer for it.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where the filesystem starts; a test puts a small tree there."""
        self._root = root
        self._mounts = _parse_mounts(read_or_none(root / "proc/self/mountinfo") or "", root)
        self._membership: dict[int | None, str] = {}

    def quota_cpus(self, pid: int | None = None) -> float | None:
        """CPU seconds per second that the tightest group allows, or None without a quota."""
        return min(_present(_quota(level) for level in self._levels("cpu", pid)), default=None)

    def throttling(self, pid: int | None = None) -> tuple[Throttling, ...]:
        """The counters of every group from the process's own upwards; empty without a CPU controller."""
        return tuple(_present(_throttling(level) for level in self._levels("cpu", pid)))

    def memory_limit_bytes(self, pid: int | None = None) -> int | None:
        """The tightest hard limit, or None."""
        return min(_present(_memory_limit(level) for level in self._levels("memory", pid)), default=None)

    def memory_available_bytes(self, pid: int | None = None) -> int | None:
        """What is left below the tightest limit, clean page cache counted as free; None without a limit."""
        return min(_present(_memory_left(level) for level in self._levels("memory", pid)), default=None)

    def oom_kills(self, pid: int | None = None) -> int | None:
        """Processes of the group that the kernel killed for want of memory, since the group was made.

        v2 counts the groups below with it, v1 does not.
        """
        for level in self._levels("memory", pid):
            text = level.read("memory.events" if level.unified else "memory.oom_control")
            if text is not None:
                return _keyed(text).get("oom_kill")
        return None

    def pressure_file(self, resource: str, pid: int | None = None) -> Path | None:
        """`cpu.pressure` or `memory.pressure` of the process's own v2 group, which a hybrid layout has too."""
        files = [level.path / f"{resource}.pressure" for level in self._levels("", pid)[:1]]
        return next((file for file in files if file.is_file()), None)

    def _levels(self, controller: str, pid: int | None) -> tuple[_Level, ...]:
        """Existing group directories of a controller ("" for the v2 tree), nearest first."""
        memberships = _parse_membership(self._membership_text(pid))
        unified = not controller or controller not in memberships
        group = memberships.get("" if unified else controller)
        mounts = [
            mount for mount in self._mounts if mount.unified == unified and (unified or controller in mount.controllers)
        ]
        if group is None or not mounts:
            return ()
        # A bind mount may show another part of the hierarchy: one that shows ours comes first.
        mount = next((m for m in mounts if group.is_relative_to(m.root)), mounts[0])
        below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else group.relative_to("/")
        # A container may see the host's name of its group while its own group is mounted as the root; then
        # the longer paths do not exist and the mount point is the group. ".." is outside our namespace.
        parts = () if ".." in below.parts else below.parts
        paths = [mount.point.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]
        return tuple(_Level(path, unified) for path in paths if path.is_dir())

    def _membership_text(self, pid: int | None) -> str:
        """Read anew each time: `systemd-run --scope` moves the process after it has started."""
        text = read_or_none(self._root / "proc" / ("self" if pid is None else str(pid)) / "cgroup")
        if text:
            self._membership[pid] = text
        return self._membership.get(pid, "")


def throttled_between(before: tuple[Throttling, ...], after: tuple[Throttling, ...]) -> Throttling | None:
    """What happened between two readings, at the level that was throttled longest; None without counters."""
    earlier = {reading.group: reading for reading in before}
    deltas = [
        Throttling(
            group=now.group,
            periods=max(0, now.periods - earlier[now.group].periods),
            throttled_periods=max(0, now.throttled_periods - earlier[now.group].throttled_periods),
            throttled_seconds=max(0.0, now.throttled_seconds - earlier[now.group].throttled_seconds),
        )
        for now in after
        if now.group in earlier
    ]
    return max(deltas, key=lambda delta: (delta.throttled_seconds, delta.periods), default=None)


def _present(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _quota(level: _Level) -> float | None:
    if level.unified:
        quota, _, period = (level.read("cpu.max") or "").partition(" ")
    else:
        quota = level.read("cpu.cfs_quota_us") or ""
        period = level.read("cpu.cfs_period_us") or ""
    try:
        quota_us, period_us = int(quota), int(period)
    except ValueError:
        return None  # "max", or no such file
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _throttling(level: _Level) -> Throttling | None:
    counters = _keyed(level.read("cpu.stat") or "")
    if "nr_periods" not in counters:
        return None
    seconds = counters.get("throttled_usec", 0) / 1e6 if level.unified else counters.get("throttled_time", 0) / 1e9
    return Throttling(str(level.path), counters["nr_periods"], counters.get("nr_throttled", 0), seconds)


def _memory_limit(level: _Level) -> int | None:
    limit = _integer(level.read("memory.max" if level.unified else "memory.limit_in_bytes"))
    return limit if limit is not None and limit < NO_LIMIT_BYTES else None


def _memory_left(level: _Level) -> int | None:
    limit = _memory_limit(level)
    used = _integer(level.read("memory.current" if level.unified else "memory.usage_in_bytes"))
    if limit is None or used is None:
        return None
    cache = _keyed(level.read("memory.stat") or "").get("inactive_file" if level.unified else "total_inactive_file", 0)
    return max(0, limit - used + cache)


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None  # "max"


def _keyed(text: str) -> dict[str, int]:
    """Lines of `name number`; others are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _parse_membership(text: str) -> dict[str, PurePosixPath]:
    """Controller -> group from `/proc/<pid>/cgroup`; the v2 tree under ""."""
    groups: dict[str, PurePosixPath] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            group = PurePosixPath(path.removesuffix(" (deleted)"))
            groups.update(dict.fromkeys(controllers.split(","), group))
    return groups


def _parse_mounts(text: str, root: Path) -> tuple[_Mount, ...]:
    """The control group mounts of a `mountinfo` (man 5 proc_pid_mountinfo)."""
    mounts = []
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        fields, kind = front.split(), back.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        mounts.append(
            _Mount(
                point=root / _unescape(fields[4]).lstrip("/"),
                root=PurePosixPath(_unescape(fields[3])),
                controllers=frozenset(kind[2].split(",")),
                unified=kind[0] == "cgroup2",
            )
        )
    return tuple(mounts)


def _unescape(path: str) -> str:
    """Blanks and backslashes are octal in `mountinfo`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
