"""What git does not track, data sets above all: both arms share the one copy there is.

The links cannot be made read-only without root: a mount needs it, and taking the user's own permissions away would
outlive a gate that is killed. So the files are looked at before and after, and what changed is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..recording.directory import OWN_DIRECTORY
from .git import git
from .model import some

_NOT_LINKED = (OWN_DIRECTORY, ".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build", "dist")
_COMPILED = (".so", ".pyd")
MOST_WATCHED = 50_000
"""Files: looking at one takes some microseconds, and data sets have millions."""
_ENVIRONMENT = "pyvenv.cfg"
"""In a virtual environment: Python writes its caches there."""
_SHOWN = 5


def new_sources(repository: Path) -> list[str]:
    """Python files that git neither tracks nor ignores: part of the working tree, and of no commit."""
    found = git("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py", cwd=repository)
    return [name for name in found.split("\0") if name and not name.startswith(OWN_DIRECTORY)]


def link_untracked(repository: Path, root: Path, trees: Path, leave_out: Sequence[str], compiled: bool) -> list[Path]:
    """Data sets, caches and environments that git does not track, as links to the one copy there is; what was linked.

    Without `compiled`, extension modules are left out: a set-up command builds them, and must not write through a link.
    """
    linked = []
    found = git("ls-files", "--others", "--directory", "--no-empty-directory", "-z", cwd=repository)
    for name in filter(None, found.split("\0")):
        path = Path(name.rstrip("/"))
        if name in leave_out or any(part in _NOT_LINKED or part.endswith(".egg-info") for part in path.parts):
            continue
        if path.suffix in _COMPILED and not compiled:
            continue
        target = root / path
        if trees.is_relative_to(repository / path):
            continue  # a link to where the link lies
        if os.path.lexists(target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(repository / path)
        linked.append(repository / path)
    return linked


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Shared files as they were at one moment."""

    roots: tuple[Path, ...]
    files: Mapping[str, tuple[int, int]]
    """Size in bytes and time of the last change in nanoseconds, by path."""
    whole: bool
    """False when there are more than `MOST_WATCHED`: then only these are known."""

    def problems(self) -> list[str]:
        """What has changed since, in sentences for the reader of a gate; none when nothing has."""
        now = take(self.roots)
        new = [path for path in now.files if path not in self.files] if self.whole and now.whole else []
        changed = [path for path, state in self.files.items() if _state(path) != state]
        found = [*changed, *new]
        if not found:
            return []
        return [
            f"the job wrote into files that both arms share with you: {some(found, _SHOWN)}; each launch may have "
            "found others (let it write somewhere else in a gate, or track what it needs in git)"
        ]


def take(roots: Iterable[Path]) -> Snapshot:
    """Look at every file under `roots`, or at the first `MOST_WATCHED`."""
    kept = tuple(roots)
    files: dict[str, tuple[int, int]] = {}
    for path in _files(kept):
        if len(files) >= MOST_WATCHED:
            return Snapshot(kept, files, False)
        state = _state(path)
        if state is not None:
            files[path] = state
    return Snapshot(kept, files, True)


def _files(roots: Sequence[Path]) -> Iterator[str]:
    for root in roots:
        if not root.is_dir():
            yield str(root)
            continue
        for place, folders, names in os.walk(root):
            if _ENVIRONMENT in names:
                folders.clear()
                continue
            folders[:] = [name for name in folders if name not in _NOT_LINKED]
            yield from (f"{place}/{name}" for name in names)


def _state(path: str) -> tuple[int, int] | None:
    try:
        seen = Path(path).stat()
    except OSError:
        return None  # gone, or a link to nowhere
    return seen.st_size, seen.st_mtime_ns
