"""Sends home what is recorded where the run directory is not, and passes messages on: a thread beside the rank.

To the rank everything is as ever: files in a directory, a Unix socket in it. The store is reached over a network, so
that no call to it is made on a thread of the job's.
"""

import atexit
import json
import os
import select
import shutil
import socket
import time
from _thread import start_new_thread

from . import post

_PATIENCE_S = 120.0
"""For a worker to be connected to its cluster; it is, long before it is given anything to train."""
_LAST_WORDS_S = 2.0
"""For what is written to be on its way, before the engine ends this process."""
_LARGEST = 65536
"""Of a message, as at the other ends."""


class Outpost:
    """Of one process, and of those that it starts."""

    def __init__(self, run: str, token: str) -> None:
        """Makes `run`, for its owner only. Raises OSError."""
        os.mkdir(run, 0o700)
        self.run, self.token, self.pid = run, token, os.getpid()
        self.name = f"{os.uname().nodename}-{os.path.basename(run)}"
        self.store = None
        self.sent: "dict[str, int]" = {}
        """Bytes of each file that are on their way."""
        self.up = self.down = 0
        self.last = 0.0
        self.over = False
        self.connection = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.listener.bind(f"/proc/self/fd/{directory}/control.sock")
        finally:
            os.close(directory)
        self.listener.listen(1)
        atexit.register(self._at_exit)
        start_new_thread(self._work, ())

    def _work(self) -> None:
        failures = 0
        try:
            self.store = post.opened(self.token, _PATIENCE_S)
            while self.store is not None and not self.over:
                messages = self._heard(post.POLL_S)
                while True:
                    try:
                        self._send_home(messages)
                        self._obey()
                        failures = 0
                        break
                    except Exception:  # the store does not answer
                        failures += 1
                        if failures * post.POLL_S > post.SILENCE_S:
                            return
                        time.sleep(post.POLL_S)
        except Exception:  # would be printed on the job's stderr
            pass

    def _heard(self, patience_s: float) -> "list[dict]":
        """Messages of the rank since the last call."""
        time.sleep(post.POLL_S / 2)
        ends = [self.listener] if self.connection is None else [self.connection]
        if not select.select(ends, (), (), patience_s / 2)[0]:
            return []
        if self.connection is None:
            self.connection = self.listener.accept()[0]
            self.connection.setblocking(False)
            return []
        messages = []
        while True:
            try:
                data = self.connection.recv(_LARGEST)
            except BlockingIOError:
                return messages
            except OSError:
                data = b""
            if not data:
                self.connection.close()
                self.connection = None
                return messages
            messages.append(json.loads(data))

    def _grown(self) -> "list[tuple[str, int, bytes]]":
        """What was written since the last call."""
        pieces = []
        for entry in os.scandir(self.run):
            at = self.sent.get(entry.name, 0)
            if entry.is_file(follow_symlinks=False) and entry.stat().st_size > at:
                with open(entry.path, "rb") as file:
                    file.seek(at)
                    pieces.append((entry.name, at, file.read()))
        return pieces

    def see_off(self) -> None:
        """Wait, on a thread of the rank's that has nothing more to do, until all that is written is on its way."""
        deadline = time.monotonic() + _LAST_WORDS_S
        while not self.over and self._grown() and time.monotonic() < deadline:
            time.sleep(post.POLL_S / 4)

    def _send_home(self, messages: "list[dict]") -> None:
        """Messages arrive no earlier than what was written before them."""
        pieces = self._grown()
        now = time.monotonic()
        quiet = self.connection is None or now - self.last < post.ALIVE_S
        if not pieces and not messages and quiet:
            return
        portions = post.divided(pieces)
        for portion in portions:
            self.store.put(
                f"up/{self.name}/{self.up:08d}", post.packed(portion, messages if portion is portions[-1] else [])
            )
            self.up += 1
            for name, at, data in portion:
                self.sent[name] = at + len(data)
        self.last = now
        if any(message.get("k") == "held" for message in messages):
            # Nothing follows: the rank waits for its end, which leaves no time to tidy up.
            self._leave()

    def _obey(self) -> None:
        """Pass commands on to the rank."""
        while self.connection is not None and not self.over:
            name = f"down/{self.name}/{self.down:08d}"
            command = self.store.get(name)
            if command is None:
                return
            self.store.remove(name)
            self.down += 1
            self.connection.setblocking(True)
            self.connection.send(command)
            self.connection.setblocking(False)

    def _leave(self) -> None:
        self.over = True
        self.listener.close()
        shutil.rmtree(self.run, ignore_errors=True)

    def _at_exit(self) -> None:
        """The ordinary way out, which Ray seldom takes: it kills its workers."""
        if self.over or os.getpid() != self.pid:
            return
        self.over = True
        try:
            # Nobody takes in what comes after the end of the driver.
            if self.store is not None and self.store.get("home") is not None:
                self._send_home([])
        except Exception:
            pass
        self._leave()
