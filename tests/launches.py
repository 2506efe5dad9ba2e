"""Launches that several tests look at: made once in a session, whichever test worker asks first."""

from __future__ import annotations

import fcntl
import hashlib
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from disturbance import Watch

Launched = TypeVar("Launched")


@dataclass(frozen=True)
class _Kept:
    """One launch's result."""

    result: Any
    disturbance: str
    """What the machine did to it; empty if nothing."""


class Launches:
    """Results of launches by what was launched, in files that all workers of a session share.

    A result is kept as it was pickled, so it holds what the launch left (texts, exit codes, paths); what is made of
    that is made by whoever looks, and stays with the object that this worker has.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._directory.mkdir(exist_ok=True)
        self._loaded: dict[Path, _Kept] = {}
        self._used: set[Path] = set()

    def once(self, key: object, launch: Callable[[Path], Launched]) -> Launched:
        """What `launch` returned for a directory of its own; `key` is all that it depends on, by its `repr`."""
        file = self._directory / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.pickle"
        self._used.add(file)
        if file not in self._loaded:
            with _locked(file):
                if not file.exists():
                    watch = Watch()
                    result = launch(Path(tempfile.mkdtemp(dir=self._directory)))
                    file.write_bytes(pickle.dumps(_Kept(result, watch.disturbance())))
                self._loaded[file] = pickle.loads(file.read_bytes())
        found: Launched = self._loaded[file].result
        return found

    def begin(self) -> None:
        """A test begins: what earlier ones used is none of its."""
        self._used.clear()

    def forget_disturbed(self) -> str:
        """Of what this test used, make what was disturbed anew when it is next asked for. Says what disturbed it."""
        said = ""
        for file in self._used & self._loaded.keys():
            if self._loaded[file].disturbance:
                said = self._loaded.pop(file).disturbance
                file.unlink(missing_ok=True)
        return said


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
