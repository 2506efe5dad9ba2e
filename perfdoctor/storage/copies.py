"""Local copies of what lies in storage, in temporary directories of this process; and what each is a copy of."""

from __future__ import annotations

import atexit
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from ..errors import PerfdoctorError
from ..recording.directory import OWNER_ONLY
from . import urls
from .remote import Remote, opened

_LISTED = 5
"""Recordings that a message names."""
_NAME = re.compile(r"(?P<time>\d{8}-\d{6})-(?P<program>.+?)(?:-[0-9a-f]{8})?", re.ASCII)
"""Of a recording: when it began, what ran, and what tells it from another node's."""
_APART = timedelta(minutes=10)
"""Longer no launcher waits for its other nodes: torchrun's own limit is 10 minutes."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """A local folder of copies."""

    url: str
    """Of the folder in storage, with its secrets."""
    suffix: str
    """What names of recordings that are made here have more there."""
    fetched: dict[str, dict[str, str]] = field(default_factory=dict)
    """Recordings of others that were fetched: of each file, which state of it is here."""


_FOLDERS: dict[Path, _Folder] = {}
"""By where they are; those that are open."""


def open_folder(url: str, suffix: str = "") -> Path:
    """A new local folder, for its owner only: each name in it stands for that name and `suffix` in storage."""
    path = Path(tempfile.mkdtemp(prefix="perfdoctor-")).resolve()
    _FOLDERS[path] = _Folder(url, suffix)
    return path


def leave_folder(path: Path) -> None:
    """From now on what is in it is called by its path."""
    _FOLDERS.pop(path, None)


def close_folder(path: Path) -> None:
    """It is not needed any more."""
    leave_folder(path)
    shutil.rmtree(path, ignore_errors=True)


def origin(path: Path) -> str:
    """What a user calls it: the URL, without secrets, of a local copy or of a file in one; any other path as it is."""
    for place in _FOLDERS.keys() & set(path.parents):
        folder, (run, *inside) = _FOLDERS[place], path.relative_to(place).parts
        name = run if run in folder.fetched else run + folder.suffix
        return urls.shown(urls.joined(folder.url, "/".join((name, *inside))))
    return str(path)


def is_stored(run: Path) -> bool:
    """Whether this recording goes to storage, or came from there."""
    return run.parent in _FOLDERS


def fetch_others(run: Path, most: int = -1) -> bool:
    """Have beside a recording that goes to storage what others have uploaded, as it is there now, and may be of the
    same launch; `most`: bytes of each file. Whether there was anything new. Raises PerfdoctorError."""
    folder, is_new = _FOLDERS[run.parent], False
    for other in _recordings(opened(folder.url)):
        if other != run.name + folder.suffix and _of_one_launch(run.name, other):
            is_new |= _fetch(run.parent, folder, other, most)
    return is_new


def forget_others(run: Path) -> None:
    """Take away what was fetched."""
    folder = _FOLDERS[run.parent]
    for other in folder.fetched:
        shutil.rmtree(run.parent / other, ignore_errors=True)
    folder.fetched.clear()


def local(name: str) -> Path:
    """The path that a user's word means; what a URL names is downloaded first, once. Raises PerfdoctorError."""
    if not urls.is_url(name):
        return Path(name)
    copy = next((path for folder in _FOLDERS for path in folder.iterdir() if origin(path) == urls.shown(name)), None)
    return copy or _downloaded(name)


def latest(url: str) -> str:
    """The URL of the latest recording below this one; "" where there is none. Raises PerfdoctorError."""
    found = _recordings(opened(url))
    return urls.joined(url, found[-1]) if found else ""


def _downloaded(url: str) -> Path:
    remote, (around, name) = opened(url), urls.parted(url)
    is_file = not remote.is_recording()
    if is_file and not remote.is_file():
        raise _no_recording(remote)
    path = open_folder(around)
    atexit.register(close_folder, path)
    if is_file:
        remote.download(path / name)
        return path / name
    _fetch(path, _FOLDERS[path], name)
    fetch_others(path / name)
    return path / name


def _fetch(path: Path, folder: _Folder, run: str, most: int = -1) -> bool:
    """A recording to `path`: of its files, those that are not there as they are in storage. Whether there were any."""
    remote, known, is_new = opened(urls.joined(folder.url, run)), folder.fetched.setdefault(run, {}), False
    (path / run).mkdir(mode=OWNER_ONLY, exist_ok=True)
    for name, state in remote.states().items():
        state = f"{state} {most}"
        if known.get(name) != state:
            half = path / run / f"{name}.{secrets.token_hex(4)}"
            remote.download(half, name, most)
            half.replace(path / run / name)
            known[name], is_new = state, True
    return is_new


def _recordings(remote: Remote) -> list[str]:
    """Names of folders there that begin with a time, as those of recordings do; the latest last."""
    return [name for name in remote.names() if _NAME.fullmatch(name)]


def _of_one_launch(name: str, other: str) -> bool:
    """Whether two may be recordings of one job, by two of its nodes: of one program, begun at about the same time.
    Whether they are, their contents say."""
    found = [_NAME.fullmatch(one) for one in (name, other)]
    if not all(found) or len({one["program"] for one in found if one}) > 1:
        return False
    began = [datetime.strptime(one["time"], "%Y%m%d-%H%M%S") for one in found if one]
    return abs(began[0] - began[1]) <= _APART


def _no_recording(remote: Remote) -> PerfdoctorError:
    """What to say of a URL that names none; it may name a folder of some."""
    found, url = _recordings(remote), urls.shown(remote.url)
    if not found:
        return PerfdoctorError(
            f"{url} is not a perfdoctor recording: there is no run.json in it",
            slug="not-a-recording",
            advice="check the URL; `perfdoctor check --runs URL` makes recordings below it",
        )
    listed = ", ".join(reversed(found[-_LISTED:])) + (", ..." if len(found) > _LISTED else "")
    return PerfdoctorError(
        f"{url} is not one recording, but holds {len(found)}: {listed}",
        slug="not-a-recording",
        advice=f"name one of them; the latest is {urls.shown(urls.joined(remote.url, found[-1]))}",
    )
