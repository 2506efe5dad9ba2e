"""The launcher's end of the control channel: a listening Unix socket in the run directory.

Every rank connects at its first step boundary and sends heartbeats; commands go down the same connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

_LARGEST = 65536


@dataclass(slots=True)
class Beat:
    """What a rank has said since the last look; sums over `steps` steps."""

    steps: int = 0
    wall_us: int = 0
    wait_us: int = 0
    samples: int = 0
    gc: int = 0
    gc_us: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a rank that takes turns says of its last slice of steps; it now waits to be let go."""

    step: int = 0
    """Steps since the start."""
    steps: int = 0
    wall_ns: int = 0
    min_ns: int = 0
    """The shortest step of the slice; on a CUDA device the mean one."""
    wait_ns: int = 0
    gc_ns: int = 0
    gen0: int = 0
    """Collections of each generation."""
    gen1: int = 0
    gen2: int = 0
    cpu_ns: int = 0
    """Of the whole process."""
    delay_ns: int = -1
    """For which the training thread was runnable without a CPU; -1 when the system does not say."""
    switches: int = 0
    """Involuntary ones, of the process."""
    faults: int = 0
    """Page faults without reading, of the process."""
    rss_kb: int = 0
    """Peak memory so far."""
    busy: int = 0
    """Whether a window is open or planned."""


@dataclass(slots=True)
class Rank:
    """One connected rank."""

    connection: socket.socket
    pid: int = 0
    rank: int = 0
    step: int = 0
    beat: Beat = field(default_factory=Beat)
    total: Beat = field(default_factory=Beat)
    failure: str = ""
    """Why the probe cannot write, while it cannot."""
    stopping: bool = False
    lag_s: float = 0.0
    """Within which what it says is heard here, and a command there; 0 on this machine."""
    held: str = ""
    """The engine (Ray, Spark) that would take its leaving for a failure, once it waits to be ended together with it."""
    turn: Turn | None = None
    """While it waits for its turn; whoever lets it go takes this away."""
    sources: list[str] = field(default_factory=list)
    """Files of the job's own modules, once it takes turns."""
    timed: bool = False
    """Its operators have been timed, or there was nothing to timing."""


class ControlServer:
    """Accepts ranks, keeps their last word, passes commands on."""

    def __init__(self, directory: Path) -> None:
        """Listen in `directory`. A socket that cannot be made leaves the server deaf, and the job unaffected."""
        self.ranks: list[Rank] = []
        self.path = directory / "control.sock"
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._job: int | None = None
        """A descriptor that can be read once the job has ended."""
        self.problem = ""
        """Why nobody can connect; "" when they can. Some network disks and FUSE hold no sockets."""
        try:
            self._listen(directory)
        except OSError as error:
            self.problem = f"no control channel: {error.strerror or error}"

    def _listen(self, directory: Path) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A socket address holds 107 bytes; through /proc the name of any directory fits.
            listener.bind(f"/proc/self/fd/{descriptor}/control.sock")
            listener.listen(64)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        finally:
            os.close(descriptor)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, None)

    def wake_at_end(self, pid: int) -> None:
        """From now on `poll` does not wait any more once this process has ended: when it did is known to the
        millisecond. Kernels before 5.3 cannot tell, and the end is seen at the next look."""
        with contextlib.suppress(OSError):
            self._job = os.pidfd_open(pid)
            self._selector.register(self._job, selectors.EVENT_READ, None)

    def poll(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for something to happen, and take note of it."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data is not None:
                self._receive(key.data)

    def send(self, rank: Rank, command: Mapping[str, object]) -> None:
        """Pass a command down; a rank that is gone does not matter."""
        with contextlib.suppress(OSError):
            rank.connection.send(json.dumps(command).encode())

    @property
    def engine(self) -> str:
        """The engine to end the job with, once every rank waits for that; "" while one does not."""
        held = {rank.held for rank in self.ranks}
        return min(held, default="")

    def close(self) -> None:
        """Let all ranks go; their jobs run on."""
        for rank in list(self.ranks):
            self._drop(rank)
        self._selector.close()
        if self._job is not None:
            os.close(self._job)
            self._job = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            rank = Rank(connection)
            self.ranks.append(rank)
            self._selector.register(connection, selectors.EVENT_READ, rank)

    def _receive(self, rank: Rank) -> None:
        while True:
            try:
                data = rank.connection.recv(_LARGEST)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(rank)
                return
            with contextlib.suppress(ValueError, KeyError, TypeError):
                _note(rank, json.loads(data))

    def _drop(self, rank: Rank) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(rank.connection)
        rank.connection.close()
        if rank in self.ranks:
            self.ranks.remove(rank)


def _note(rank: Rank, message: Mapping[str, object]) -> None:
    kind = message["k"]
    if kind == "hello":
        rank.pid, rank.rank = int(str(message["pid"])), int(str(message["rank"]))
        rank.lag_s = float(str(message.get("lag_s", 0)))
    elif kind == "beat":
        rank.step = int(str(message["step"]))
        rank.failure = str(message.get("failure", ""))
        for name in ("steps", "wall_us", "wait_us", "samples", "gc", "gc_us"):
            value = int(str(message.get(name, 0)))
            setattr(rank.beat, name, getattr(rank.beat, name) + value)
            setattr(rank.total, name, getattr(rank.total, name) + value)
    elif kind == "turn":
        names = [field.name for field in fields(Turn)]
        rank.turn = Turn(**{name: int(str(message[name])) for name in names if name in message})
    elif kind == "sources":
        files = message["files"]
        rank.sources += [str(file) for file in files] if isinstance(files, list) else []
    elif kind == "stopping":
        rank.stopping = True
    elif kind == "held":
        rank.held = str(message["engine"])
    elif kind == "timed":
        rank.timed = True
