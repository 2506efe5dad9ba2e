"""One place in storage, by as few of fsspec's calls as will do. Failures name the URL, without its secrets."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import PerfdoctorError
from ..recording.directory import OWNER_ONLY, RunDirectory
from . import urls

_RUN_FILE = RunDirectory(Path()).run_file.name
_OWNERS_FILE = 0o600
_MARKER = ".perfdoctor"
"""Written before a job starts, so that storage that refuses writes is known by then. It stays: who may write may
not always delete."""
_MARKED = b"Recordings of perfdoctor: perfdoctor report URL/NAME shows one.\n"
_READING = "check the URL and this shell's credentials"


@dataclass(frozen=True, slots=True)
class Remote:
    """A folder of recordings, a recording or a file."""

    url: str
    """With its secrets: only `urls.shown` may be printed."""
    files: Any
    """fsspec's file system."""
    root: str
    """The place, as the file system names it."""

    def __str__(self) -> str:
        return urls.shown(self.url)

    def require_writable(self) -> None:
        """Raises PerfdoctorError where it is not."""
        with _told(
            "cannot write to", self.url, "name a place that takes recordings with --runs; the job was not started"
        ):
            self._make_folder(self.root)
            self._write(f"{self.root}/{_MARKER}", _MARKED)

    def make_run(self, run: str) -> None:
        """The folder of a recording. Raises PerfdoctorError."""
        with _told("cannot write to", self.url, _READING):
            self._make_folder(f"{self.root}/{run}")

    def upload(self, file: Path, run: str) -> None:
        """A file as it is now, whole, into the folder `run`. Raises PerfdoctorError."""
        with _told("cannot write to", self.url, _READING):
            content = file.read_bytes()
            self._write(f"{self.root}/{run}/{file.name}", content)

    def names(self) -> list[str]:
        """What lies in the folder, sorted; nothing where there is none. Raises PerfdoctorError where it is not told."""
        return sorted(self.states())

    def states(self) -> dict[str, str]:
        """The same, each with what the storage says of it: its size, its time, often a hash, and so another text once
        it has changed."""
        with _told("cannot read", self.url, _READING):
            self.files.invalidate_cache()
            try:
                told = self.files.ls(self.root, detail=True)
            except FileNotFoundError:
                told = []
        found = {str(one["name"]).rstrip("/"): repr(one) for one in told}
        # Others may have named what lies there: no name leads out of the folder that it is downloaded to.
        states = {PurePosixPath(path).name: state for path, state in found.items() if path != self.root}
        return {name: state for name, state in states.items() if name not in ("", ".", "..")}

    def is_recording(self) -> bool:
        """Raises PerfdoctorError where nobody may look."""
        return _RUN_FILE in self.names()

    def is_file(self) -> bool:
        """Raises PerfdoctorError where nobody may look."""
        with _told("cannot read", self.url, _READING):
            return bool(self.files.isfile(self.root))

    def download(self, to: Path, name: str = "", most: int = -1) -> None:
        """The file, or one of the folder's, for its owner's eyes only; `most`: of its bytes. Raises PerfdoctorError."""
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNERS_FILE)
        with (
            os.fdopen(descriptor, "wb") as file,
            _told("cannot read", self.url, _READING),
            self.files.open(f"{self.root}/{name}".rstrip("/"), "rb") as content,
        ):
            if most < 0:
                shutil.copyfileobj(content, file)
            else:
                file.write(content.read(most))

    @property
    def _is_local(self) -> bool:
        return "file" in self.files.protocol

    def _make_folder(self, folder: str) -> None:
        """Object stores have none, and a bucket is never made: its name may be misspelled."""
        if self._is_local:
            Path(folder).mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            return
        with suppress(OSError, NotImplementedError):  # writing says what is wrong
            self.files.mkdir(folder, create_parents=False)

    def _write(self, path: str, content: bytes) -> None:
        if not self._is_local:
            self.files.pipe_file(path, content)
            return
        # As in an object store, no reader meets half of it; as in a run directory, no stranger meets any.
        half = Path(f"{path}.{secrets.token_hex(4)}")
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNERS_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        half.replace(path)


def opened(url: str) -> Remote:
    """Raises PerfdoctorError where a package is missing or the URL is none of storage; asks the storage nothing yet."""
    if url.startswith("memory:"):
        raise PerfdoctorError(
            f"{urls.shown(url)} ends with this process, and every recording in it",
            slug="storage",
            advice="name storage that lasts: a directory, or a URL such as s3://bucket/runs",
        )
    try:
        with _told("cannot open", url, "name a directory, or a URL such as s3://bucket/runs"):
            import fsspec  # with the extra perfdoctor[storage]

            files, root = fsspec.url_to_fs(url, use_listings_cache=False)
    except PerfdoctorError as error:
        if isinstance(error.__cause__, ImportError):
            # The backend's own words name the package: "Install s3fs to access S3".
            error.slug, error.advice = "storage-package", f"for this interpreter: {_pip(error.__cause__)}"
        raise
    return Remote(url, files, str(root).rstrip("/"))


def _pip(missing: ImportError) -> str:
    """What to type where fsspec is missing, or what it needs for this kind of storage."""
    package = "'perfdoctor[storage]'" if missing.name == "fsspec" else "PACKAGE"
    return f"{sys.executable} -m pip install {package}"


@contextmanager
def _told(what: str, url: str, advice: str) -> Iterator[None]:
    """Failures as PerfdoctorError. Every backend raises what its client library does, so that all kinds count."""
    try:
        yield
    except Exception as error:
        why = urls.without_secrets(str(error) or type(error).__name__, url)
        raise PerfdoctorError(f"{what} {urls.shown(url)}: {why}", slug="storage", advice=advice) from error
