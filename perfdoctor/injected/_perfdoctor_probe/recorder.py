"""Appends whole lines to this process's file in the run directory.

The file is opened for each flush and closed again: no descriptor is held that the job could close, inherit or
see, and a fork needs no care beyond a new name. A flush costs about 25 us and happens about twice a second.
"""

import os
import time

from . import records

_LIMIT = 4 << 20
"""Bytes kept when the disk is full; what comes after is dropped."""


class Recorder:
    """A buffer of JSON lines in front of one file."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.sender = None
        """What writes in the place of the file system, in a process that does not see the run directory."""
        self.renew()

    def renew(self) -> None:
        """Start a file of its own: at process start, and in the child after a fork."""
        self.path = f"{self.run}/{records.file_name(os.getpid(), time.perf_counter_ns())}"
        self.pending: "list[bytes]" = []
        self.size = 0
        self.failure = ""

    def disable(self) -> None:
        """Write nothing more: this process cannot be told from another."""
        self.size = _LIMIT + 1
        self.pending = []

    def record(self, kind: str, /, **fields) -> None:
        """Queue one record. Called on any thread."""
        if self.size > _LIMIT:
            return
        data = records.encoded({"k": kind, **fields}).encode("ascii", "backslashreplace") + b"\n"
        self.pending.append(data)
        self.size += len(data)

    def flush(self) -> None:
        """Append what is queued. What does not fit on the disk stays queued, from the very byte."""
        # Other threads may queue lines meanwhile: only what is counted here is taken off the front.
        count = len(self.pending)
        if not count:
            return
        data = b"".join(self.pending[:count])
        done = 0
        try:
            if self.sender is not None:
                done = self.sender.write(self.path, data)
            else:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    while done < len(data):
                        done += os.write(descriptor, data[done:])
                finally:
                    os.close(descriptor)
            self.failure = ""
        except OSError as error:
            self.failure = f"{type(error).__name__}: {error.strerror}"
        rest = data[done:]
        self.pending[:count] = [rest] if rest else []
        self.size -= done


def columns(names: tuple, rows: list) -> dict:
    """`rows` as columns; one whose entries are all the same is written as one number."""
    record: dict = {"n": len(rows)}
    for name, column in zip(names, zip(*rows)):
        record[name] = column[0] if column.count(column[0]) == len(column) else column
    return record
