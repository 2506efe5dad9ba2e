"""Takes in what distant processes send home: a thread in the driver, which writes it into the run directory.

To the launcher a distant rank is one like the others: this thread holds its end of the control channel.
"""

import atexit
import json
import os
import re
import time
from _thread import start_new_thread

from .. import control
from . import post

_PATIENCE_S = 120.0
"""For the driver to be connected to its cluster."""
_NAME = re.compile(r"(process-\d+-\d+\.jsonl|trace-\d+-\d+\.json)")
"""What may be written into the run directory: it comes over a network."""


class _Distant:
    """A process elsewhere."""

    def __init__(self) -> None:
        self.hello = None
        self.control = None
        self.heard = time.monotonic()
        self.down = 0
        self.held = False
        """Whether it has said its last word."""


class Gathering:
    """Of one driver."""

    def __init__(self, run: str, token: str, connected) -> None:
        """`connected` is called once the driver has connected, or has not for long."""
        self.run, self.token, self.connected, self.pid = run, token, connected, os.getpid()
        self.store = None
        self.distant: "dict[str, _Distant]" = {}
        self.over = False
        atexit.register(self._at_exit)
        start_new_thread(self._work, ())

    def _work(self) -> None:
        failing_since = 0.0
        try:
            store = post.opened(self.token, _PATIENCE_S)
            self.connected()
            if store is None:
                return
            store.put("home", b"")
            self.store = store
            while not self.over:
                time.sleep(post.POLL_S)
                try:
                    self._take_in()
                    self._pass_on()
                    failing_since = 0.0
                except Exception:  # the store does not answer, or the disk is full: once more
                    failing_since = failing_since or time.monotonic()
                    if time.monotonic() - failing_since > 6 * post.SILENCE_S:
                        self.over = True
        except Exception:  # would be printed on the job's stderr
            self.over = True

    def _take_in(self) -> None:
        for name in self.store.names("up/"):
            who = name.split("/")[1]
            batch = self.store.get(name)
            if batch is None:
                continue
            try:
                pieces, messages = post.unpacked(batch)
            except (ValueError, KeyError, TypeError):
                pieces, messages = [], []
            for piece in pieces:
                self._write(*piece)
            distant = self.distant.setdefault(who, _Distant())
            distant.heard = time.monotonic()
            self.store.remove(name)
            for message in messages:
                if message.get("k") == "held":
                    distant.held = True
                    self._tidy_up(who)
                self._tell(distant, message)

    def _tidy_up(self, who: str) -> None:
        """Once the launcher hears that all ranks are held, it ends the driver, which leaves no time. No rank that is
        held looks whether anybody is at home, and of those of an attempt that failed nothing more is heard."""
        self.store.remove(f"down/{who}/", all_under=True)
        self.store.remove("home")

    def _write(self, name: str, at: int, data: bytes) -> None:
        if not _NAME.fullmatch(name):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(f"{self.run}/{name}", flags, 0o600)
        try:
            while data:
                done = os.pwrite(descriptor, data, at)
                data, at = data[done:], at + done
        finally:
            os.close(descriptor)

    def _tell(self, distant: _Distant, message: dict) -> None:
        if message.get("k") == "hello":
            distant.hello = {**message, "lag_s": post.LAG_S}
        elif distant.control is not None:
            distant.control.tell(message)
        if distant.control is None and distant.hello is not None:
            distant.control = control.Control(self.run, distant.hello)

    def _pass_on(self) -> None:
        now = time.monotonic()
        for who, distant in self.distant.items():
            if distant.control is None:
                continue
            for command in distant.control.commands():
                self.store.put(f"down/{who}/{distant.down:08d}", json.dumps(command).encode())
                distant.down += 1
            if not distant.held and now - distant.heard > post.SILENCE_S:  # it has died, or its node has
                distant.control.close()
                distant.control = None

    def _at_exit(self) -> None:
        if os.getpid() != self.pid or self.over:
            return
        self.over = True
        try:
            if self.store is not None:
                self._take_in()
                self.store.remove("", all_under=True)
        except Exception:
            pass
