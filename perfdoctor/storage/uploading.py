"""Uploads recordings while they grow: every file that has changed, whole, for object stores do not append.

A thread of the launcher does it, never the job: fsspec's clients do not outlive a fork.
"""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import PerfdoctorError
from .remote import Remote

_HALF = ".tmp"
"""Of files that are about to replace others: run.json, trials.json."""
_SHARE = 20
"""Rounds are at least so many times as far apart as the last one took: what grows for days is uploaded ever more
rarely, and uploading takes at most 5 % of a CPU from the job."""
_PATIENCE_S = 60.0
"""For one file, at the end. A client gives up sooner by itself where the network answers at all."""
_START_S = 30.0
"""For the first answer: clients that find no credentials ask the network for them, and try again and again."""


class Uploader:
    """Uploads what lies in the run directories of a folder."""

    def __init__(self, remote: Remote, folder: Path, suffix: str, every_s: float | None) -> None:
        """`suffix`: behind names of run directories. `every_s`: between rounds; None for one at the end."""
        self.remote = remote
        self.folder = folder
        self.suffix = suffix
        self.failure = ""
        """Why the last round did not upload everything; "" when it did."""
        self._every_s = every_s
        self._uploaded: dict[Path, tuple[int, int]] = {}
        """Size and time of change of each file, as it was."""
        self._runs: set[str] = set()
        """Whose folders are there."""
        self._ended = threading.Event()
        self._last_s = time.monotonic()
        """When something was uploaded last."""
        self._thread = threading.Thread(target=self._run, name="perfdoctor-upload", daemon=True)

    def start(self) -> None:
        """Raises PerfdoctorError where the storage takes nothing."""
        refused: list[PerfdoctorError] = []

        def ask() -> None:
            try:
                self.remote.require_writable()
            except PerfdoctorError as error:
                refused.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_START_S)
        if asking.is_alive():
            raise PerfdoctorError(
                f"{self.remote} does not answer: nothing within {_START_S:.0f} s",
                slug="storage",
                advice="check the URL and the network; the job was not started",
            )
        if refused:
            raise refused[0]
        self._thread.start()

    def finish(self) -> str:
        """Upload what there is. Returns why that did not work; "" when it did."""
        self._ended.set()
        self._last_s = time.monotonic()
        while self._thread.is_alive():
            self._thread.join(0.1)
            if time.monotonic() - self._last_s > _PATIENCE_S:
                return f"{self.remote} has not answered for {_PATIENCE_S:.0f} s"
        return self.failure

    def _run(self) -> None:
        wait_s = self._every_s
        while not self._ended.wait(wait_s):
            began = time.monotonic()
            self.upload()
            wait_s = max(self._every_s or 0.0, _SHARE * (time.monotonic() - began))
        self.upload()

    def upload(self) -> None:
        """One round. The first file that is refused ends it: the others would be too."""
        self.failure = ""
        for file, state in list(_files(self.folder)):
            if self._uploaded.get(file) == state:
                continue
            run = file.parent.name + self.suffix
            try:
                if run not in self._runs:
                    self.remote.make_run(run)
                    self._runs.add(run)
                self.remote.upload(file, run)
            except PerfdoctorError as error:
                if file.exists():  # else nobody wants it any more
                    self.failure = error.message
                    return
            self._uploaded[file] = state
            self._last_s = time.monotonic()


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Of all recordings there, with size and time of change; each run.json last: with it, readers take it for whole."""
    for run_file in sorted(folder.glob("*/run.json")):
        others = [path for path in sorted(run_file.parent.iterdir()) if path != run_file and path.suffix != _HALF]
        for path in (*others, run_file):
            with suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield path, (status.st_size, status.st_mtime_ns)
