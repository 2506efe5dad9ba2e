"""The probe's end of the control channel: a Unix socket in the run directory, polled at step boundaries.

Up go heartbeats, down come commands. There is no thread: a poll is one non-blocking system call, made at most
every `POLL_NS`. Without a socket, or with a broken one, the job just runs.
"""

import json
import os
import socket

POLL_NS = 50_000_000
_ASKING_AT_ONCE = 64
"""Ranks that may ask the server of their job's store every `POLL_NS`; of more, each asks less often: an answer takes it
some 30 us."""
_LARGEST = 65536


def period_ns(world: int) -> int:
    """Between two looks of a rank for what was agreed with ranks that other launchers hear from."""
    return POLL_NS * max(1, world // _ASKING_AT_ONCE)


class Control:
    """One connection, message by message (SOCK_SEQPACKET keeps their borders)."""

    def __init__(self, run: str, hello: dict) -> None:
        self.socket = self._connect(run)
        self.send(hello)

    def _connect(self, run: str) -> "socket.socket | None":
        directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                # Through /proc the name stays short: a socket address holds 107 bytes, a run directory may not.
                connection.connect(f"/proc/self/fd/{directory}/control.sock")
                # Whatever default timeout the job has set; who does not want to wait says so at each call.
                connection.setblocking(True)
            except OSError:
                connection.close()
                return None
        finally:
            os.close(directory)
        return connection

    def send(self, message: dict) -> None:
        """Drop the message rather than wait: the launcher may be busy."""
        self._send(message, socket.MSG_DONTWAIT)

    def tell(self, message: dict) -> bool:
        """Send, and wait until there is room: what takes turns must not lose a message. False when nobody is there."""
        self._send(message, 0)
        return self.socket is not None

    def _send(self, message: dict, flags: int) -> None:
        if self.socket is None:
            return
        try:
            self.socket.send(self._encoded(message), flags | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def wait(self, patience_s: "float | None" = None) -> "dict | None":
        """The next command, however long it takes, or None after `patience_s`; None when the launcher is gone."""
        if self.socket is not None and patience_s is not None:
            self.socket.settimeout(patience_s)
        return self._received(0)

    def commands(self) -> "list[dict]":
        """What has come down since the last call."""
        return list(iter(lambda: self._received(socket.MSG_DONTWAIT), None))

    def _encoded(self, message: dict) -> bytes:
        return json.dumps(message, separators=(",", ":")).encode()

    def _received(self, flags: int) -> "dict | None":
        while (data := self._read(flags)) is not None:
            try:
                return json.loads(data)
            except ValueError:
                continue
        return None

    def _read(self, flags: int) -> "bytes | None":
        """What has come next; None when nothing has, and when the launcher is gone."""
        if self.socket is None:
            return None
        try:
            data = self.socket.recv(_LARGEST, flags)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.close()
        return data or None

    def close(self) -> None:
        """Let go; the job runs on."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
