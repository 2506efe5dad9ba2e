"""The way home for a process that does not see the run directory: TCP to the launcher, which the driver of an engine
has told its workers of.
"""

import json
import os
import socket

from . import control

VARIABLE = "PERFDOCTOR_CHANNEL"
"""`token@host:port`, in the environment of processes that may be on other machines."""
_PATIENCE_S = 2.0
"""For a connection: one that takes longer would hold the job up."""


def serve(recorder) -> None:
    """Have what `recorder` writes sent, in a process that does not see the run directory and knows the way home."""
    if VARIABLE in os.environ and not os.access(recorder.run, os.W_OK):
        recorder.sender = Sender()


def opened(first: dict) -> "socket.socket | None":
    """A connection that has said the token and `first`; None where there is no way home. Raises OSError."""
    token, _, address = os.environ.get(VARIABLE, "").rpartition("@")
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not token or not port.isdecimal():
        return None
    connection = socket.create_connection((host, int(port)), _PATIENCE_S)
    try:
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_line({**first, "token": token}))
    except OSError:
        connection.close()
        raise
    return connection


def _line(message: dict) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Sender:
    """Sends what a recorder would write. A connection that was lost is not made again."""

    def __init__(self) -> None:
        self.path = ""
        """The file that the connection is for."""
        self.connection = None

    def write(self, path: str, data: bytes) -> int:
        """How many bytes are on their way. Raises OSError."""
        if path != self.path:
            if self.connection is not None:  # of the process that this one was forked from
                self.connection.close()
            self.path, self.connection = path, None
            self.connection = opened({"file": os.path.basename(path)})
        if self.connection is None:
            raise ConnectionError(None, "no way to the launcher")
        try:
            return self.connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0


class Remote(control.Control):
    """The control channel over TCP: one message a line."""

    rest = b""

    def _connect(self, run: str) -> "socket.socket | None":
        return opened({"k": "remote"})

    def _encoded(self, message: dict) -> bytes:
        return _line(message)

    def _received(self, flags: int) -> "dict | None":
        while self.socket is not None:
            line, end, rest = self.rest.partition(b"\n")
            if end:
                self.rest = rest
                try:
                    return json.loads(line)
                except ValueError:
                    continue
            data = self._read(flags)
            if data is None:
                break
            self.rest += data
        return None
