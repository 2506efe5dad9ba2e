"""`/proc/<pid>/stat`, read by hand: one scan of a machine costs a fraction of what psutil's objects cost."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process at one moment."""

    pid: int
    name: str
    """At most 15 characters, as the kernel keeps it."""
    parent: int
    group: int
    session: int
    ticks: int
    """CPU time, user's and system's of all threads, in clock ticks since its start."""
    children_ticks: int
    """Of the children that died and were waited for, and theirs."""
    start: int
    """Clock ticks since boot; with the pid it names a process for good."""


def read_text(path: str) -> str:
    """A whole small file. Raises OSError (a process that ended: FileNotFoundError or ProcessLookupError)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="replace")


def read_or_none(path: Path) -> str | None:
    """A whole small file without blanks around it; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_stat(pid: int, proc: str = "/proc") -> ProcessStat | None:
    """The process, or None when there is no such process or it may not be seen."""
    try:
        text = read_text(f"{proc}/{pid}/stat")
    except OSError:
        return None
    # The name is in parentheses and may itself hold blanks and parentheses: the last one ends it.
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 2 :].split()
    if opening < 0 or len(fields) < 20:
        return None
    return ProcessStat(
        pid=pid,
        name=text[opening + 1 : closing],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        start=int(fields[19]),
    )


def scan(root: Path = Path("/")) -> tuple[ProcessStat, ...]:
    """Every process that may be seen, oldest first. Raises OSError without /proc."""
    proc = str(root / "proc")
    found = (read_stat(int(entry), proc) for entry in os.listdir(proc) if entry.isdecimal())  # noqa: PTH208
    return tuple(sorted((stat for stat in found if stat is not None), key=lambda stat: (stat.start, stat.pid)))
