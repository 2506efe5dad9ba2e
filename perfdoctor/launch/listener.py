"""Where processes on other machines report that share no directory with the launcher: a TCP port, opened only for an
engine whose workers may be there, on the address that its driver uses itself.

Who connects says the token first, on a line of JSON, and what it is going to send: messages of the control channel, or
the lines of a process's file. Nothing is evaluated, and no file is written but a process's own in the run directory.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FILE = re.compile(r"process-\d{1,10}-\d{1,20}\.jsonl")
_LONGEST_LINE = 1 << 16
"""Of a message, or of the line that says the token."""


@dataclass(slots=True)
class Lines:
    """Whole lines out of a stream of bytes."""

    rest: bytes = b""

    def add(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes. Raises ValueError where one is longer than any of ours."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > _LONGEST_LINE:
            raise ValueError("a line without an end")
        return lines


@dataclass(slots=True)
class Caller:
    """A connection that has not said the token yet, or sends a file."""

    connection: socket.socket
    lines: Lines = field(default_factory=Lines)
    file: Path | None = None


class Listener:
    """The open port."""

    def __init__(self, host: str, bound: str, directory: Path) -> None:
        """Listens on the address `bound`, which others know as `host`, on whatever port is free. Raises OSError."""
        self.directory = directory
        self.token = secrets.token_hex(16)
        family, *_, address = socket.getaddrinfo(bound.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.socket.bind(address)
            self.socket.listen(128)
            self.socket.setblocking(False)
        except OSError:
            self.socket.close()
            raise
        self.address = f"{host}:{self.socket.getsockname()[1]}"

    @property
    def channel(self) -> str:
        """What a process must know to report here."""
        return f"{self.token}@{self.address}"

    def accept(self) -> Caller:
        """Who calls; nothing is believed of it yet. Raises OSError."""
        connection, _ = self.socket.accept()
        connection.setblocking(False)
        return Caller(connection)

    def receive(self, caller: Caller, data: bytes) -> Mapping[str, object] | None:
        """Take note of what came: the caller's first message where it is a rank's, and it is none of ours any more.

        Raises ValueError where it has not the token, or asks for what there is not; OSError where its file cannot be
        written.
        """
        if caller.file is not None:
            _append(caller.file, data)
            return None
        first, *more = caller.lines.add(data) or (None,)
        if first is None:
            return None
        message = json.loads(first)
        if not isinstance(message, dict) or not hmac.compare_digest(str(message.get("token")), self.token):
            raise ValueError("not the token")
        rest = b"".join(line + b"\n" for line in more) + caller.lines.rest
        if "file" not in message:
            caller.lines.rest = rest
            return message
        if not _FILE.fullmatch(str(message["file"])):
            raise ValueError("not the name of a process's file")
        caller.file = self.directory / str(message["file"])
        _append(caller.file, rest)
        return None

    def close(self) -> None:
        """Nobody can call any more."""
        self.socket.close()


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
        file.write(data)
