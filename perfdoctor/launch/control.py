"""The launcher's end of the control channel: a listening Unix socket in the run directory.

Every rank connects at its first step boundary and sends heartbeats; commands go down the same connection. A rank that
does not see the run directory reports by TCP (`listener`), where the driver of an engine has asked for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from .listener import Caller, Lines, Listener
from .payload import packed

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
    lines: Lines | None = None
    """Of one that reports by TCP; others send message by message."""
    peer: int = 0
    """Its process as this machine numbers it, whatever it calls itself; 0 where the kernel does not say."""
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
    world: int = 0
    """Ranks of its job; 0 until it has said."""
    here: int = 0
    """Of them, those on its machine; 0 where its launcher did not say."""
    meets: bool = False
    """It was told to meet ranks that others hear from."""
    met: bool = False
    """It is rank 0, and all have come."""
    cannot: str = ""
    """Why all ranks cannot leave together, after it was asked for that."""


class ControlServer:
    """Accepts ranks, keeps their last word, passes commands on."""

    def __init__(self, directory: Path) -> None:
        """Listen in `directory`. A socket that cannot be made leaves the server deaf, and the job unaffected."""
        self.ranks: list[Rank] = []
        self.path = directory / "control.sock"
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._remote: Listener | None = None
        self._callers: list[Caller] = []
        """By TCP: who has not said what it is, and who sends a file."""
        self._job: int | None = None
        """A descriptor that can be read once the job has ended."""
        self._known: set[int] = set()
        """Numbers of the ranks that have said who they are; some may have left."""
        self.agreed: str | None = None
        """Once ranks leave that have agreed to with all others: why, "" when enough was seen."""
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
            self.path.chmod(0o600)
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
            elif self._remote is not None and key.fileobj is self._remote.socket:
                with contextlib.suppress(OSError):
                    self._callers.append(caller := self._remote.accept())
                    self._selector.register(caller.connection, selectors.EVENT_READ, caller)
            elif self._remote is not None and isinstance(key.data, Caller):
                self._hear(key.data, self._remote)
            elif key.data is not None:
                self._receive(key.data)

    def send(self, rank: Rank, command: Mapping[str, object]) -> None:
        """Pass a command down; a rank that is gone does not matter."""
        with contextlib.suppress(OSError):
            rank.connection.send(json.dumps(command).encode() + b"\n")

    @property
    def receiving(self) -> bool:
        """Whether a process still sends by TCP."""
        return bool(self._callers)

    @property
    def engine(self) -> str:
        """The engine to end the job with, once every rank waits for that; "" while one does not."""
        held = {rank.held for rank in self.ranks}
        return min(held, default="")

    @property
    def hears_each(self) -> bool:
        """Whether every rank of the job has spoken up."""
        return all(len(self._known) >= rank.world for rank in self.ranks)

    @property
    def hears_all(self) -> bool:
        """Whether no rank is elsewhere, where another launcher may hear from it, or nobody, or an order comes late."""
        if self.hears_late:
            return False
        return self.hears_each or all(rank.here >= rank.world for rank in self.ranks)

    @property
    def hears_late(self) -> bool:
        """Whether ranks of one job are reached with a lag: on a busy machine one may have passed the step of an order
        that another one obeys, and neither ever leaves."""
        numbers = {rank.rank for rank in self.ranks}
        return len(numbers) == len(self.ranks) > 1 and any(rank.lag_s for rank in self.ranks)

    @property
    def ranks_obey(self) -> bool:
        """Whether there are ranks, and an order reaches all."""
        lead = self.lead
        return bool(self.ranks) and (self.hears_all or (lead is not None and lead.met))

    @property
    def lead(self) -> Rank | None:
        """Rank 0, if it is heard from: it speaks for all where one launcher does not hear from all."""
        return next((rank for rank in self.ranks if rank.rank == 0), None)

    def close(self) -> None:
        """Let all ranks go; their jobs run on."""
        for rank in list(self.ranks):
            self._drop(rank)
        self._selector.close()
        for caller in self._callers:
            caller.connection.close()
        if self._remote is not None:
            self._remote.close()
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
            rank = Rank(connection, peer=_peer(connection))
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
                self._heed(rank, data)

    def _heed(self, rank: Rank, data: bytes) -> None:
        for line in [data] if rank.lines is None else rank.lines.add(data):
            message = json.loads(line)
            if message["k"] == "driver":
                self._equip(rank, message)
            else:
                _note(rank, message)
                self._know(rank, message)

    def _know(self, rank: Rank, message: Mapping[str, object]) -> None:
        """What a message says of all ranks together."""
        if message["k"] == "hello":
            self._known.add(rank.rank)
        if "why" in message and rank.stopping:
            self.agreed = str(message["why"])

    def _equip(self, driver: Rank, message: Mapping[str, object]) -> None:
        """Answer the driver of an engine, which is no rank, with what it is to ship to its workers; they may be on
        other machines where it says its address."""
        self.ranks.remove(driver)
        with contextlib.suppress(OSError):
            payload = packed(self.path.parent)
            if "host" in message and self._remote is None:
                with contextlib.suppress(OSError):
                    self._remote = Listener(str(message["host"]), str(message["bound"]), self.path.parent)
                    self._selector.register(self._remote.socket, selectors.EVENT_READ, None)
            channel = self._remote.channel if self._remote is not None else ""
            self.send(driver, {"payload": str(payload), "channel": channel})

    def _hear(self, caller: Caller, remote: Listener) -> None:
        """What comes over TCP: once it is a rank that speaks, it is treated as any other."""
        try:
            data = caller.connection.recv(_LARGEST)
            hello = remote.receive(caller, data) if data else None
        except BlockingIOError:
            return
        except (OSError, ValueError, TypeError):
            data, hello = b"", None
        if data and hello is None:
            return
        self._selector.unregister(caller.connection)
        self._callers.remove(caller)
        if hello is None:
            caller.connection.close()
            return
        rank = Rank(caller.connection, lines=caller.lines)
        self.ranks.append(rank)
        self._selector.register(rank.connection, selectors.EVENT_READ, rank)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._heed(rank, b"")

    def _drop(self, rank: Rank) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(rank.connection)
        rank.connection.close()
        if rank in self.ranks:
            self.ranks.remove(rank)


def _peer(connection: socket.socket) -> int:
    try:
        # struct ucred: process, user and group.
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])
    except (AttributeError, OSError, struct.error):
        return 0


def _note(rank: Rank, message: Mapping[str, object]) -> None:
    kind = message["k"]
    if kind == "hello":
        rank.pid, rank.rank = int(str(message["pid"])), int(str(message["rank"]))
        rank.world, rank.here = int(str(message.get("world_size", 1))), int(str(message.get("here", 0)))
        rank.lag_s = float(str(message.get("lag_s", 0)))
    elif kind == "beat":
        rank.step = int(str(message["step"]))
        rank.failure = str(message.get("failure", ""))
        rank.met = bool(message.get("met", False))
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
    elif kind == "cannot":
        rank.cannot = str(message["why"])
    elif kind == "held":
        rank.held = str(message["engine"])
    elif kind == "timed":
        rank.timed = True
