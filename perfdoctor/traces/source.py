"""Which files are meant by a path: a trace, a folder with one for each rank, a TensorBoard log with its runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path

from ..recording.directory import RunDirectory
from .refusals import no_traces_in, unreadable
from .text import TraceText

PROFILER = (".pt.trace.json", ".pt.trace.json.gz")
"""As `tensorboard_trace_handler` names them."""
OTHERS = (".json", ".json.gz")
NSYS = (".sqlite",)
_TIME = re.compile(r"\.(\d{10,})\.")
"""Behind the worker's name: milliseconds, or nanoseconds since PyTorch 2.1."""
_DIGITS = 13
"""Of a time in milliseconds."""
_RANK = re.compile(r"(?:rank|worker)[-_]?(\d+)")


@dataclass(frozen=True, slots=True)
class Sources:
    """Traces to be judged together."""

    paths: tuple[Path, ...]
    """One for each rank, in order of the ranks."""
    note: str = ""
    """What was left out, as a sentence; "" where nothing was."""


def is_trace(path: Path) -> bool:
    """Whether a path means traces and no recording of perfdoctor's own, which is always a directory."""
    if path.is_dir():
        return not RunDirectory(path).run_file.exists() and bool(_files(path) or _runs(path))
    return path.is_file() or path.name.endswith((*PROFILER, *OTHERS, *NSYS))


def holds_events(path: Path) -> bool:
    """Whether a file is a trace by what is in it."""
    return path.is_file() and (path.name.endswith(NSYS) or TraceText(path).begins())


def written(path: Path) -> date:
    """The day on which a file was written last: a trace does not say when it was recorded."""
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date()


def find(path: Path) -> Sources:
    """Of a folder, the newest trace of each rank. Raises PerfdoctorError where there is none."""
    if not path.is_dir():
        if not path.exists():
            raise unreadable(path, FileNotFoundError(2, "no such file"))
        return Sources((path,))
    files, notes = _files(path), []
    if not files and (runs := _runs(path)):
        files = _files(runs[-1])
        if len(runs) > 1:
            notes.append(f"{runs[-1].name} is the newest of {len(runs)} runs in {path}; the others are left out")
    if not files:
        raise no_traces_in(path)
    newest: dict[int | None, Path] = {}
    for file in sorted(files, key=_written):
        newest[_rank(file)] = file
    if len(newest) < len(files):
        left = len(files) - len(newest)
        notes.append(f"{left} older trace{'s'[: left != 1]} of the same ranks in {path} left out")
    ranks = sorted(newest, key=lambda rank: -1 if rank is None else rank)
    return Sources(tuple(newest[rank] for rank in ranks), "; ".join(notes))


def _files(folder: Path) -> list[Path]:
    """Traces that lie in a folder itself."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    for endings in (PROFILER, NSYS):
        if found := [file for file in files if file.name.endswith(endings)]:
            return found
    return [file for file in files if file.name.endswith(OTHERS) and TraceText(file).begins()]


def _runs(folder: Path) -> list[Path]:
    """Of a TensorBoard log, or of any folder of folders, those that hold traces of the profiler; the newest last."""
    newest: dict[Path, tuple[float, str]] = {}
    for place in (folder / "plugins" / "profile", folder):
        for run in place.iterdir() if place.is_dir() else ():
            files = [file for ending in PROFILER for file in run.glob("*" + ending)]
            if files:
                newest[run] = max(map(_written, files))
    return sorted(newest, key=newest.__getitem__)


def _written(file: Path) -> tuple[float, str]:
    """When a trace was written, by its name or else by its file, in milliseconds; the name where that is the same."""
    if said := _TIME.search(file.name):
        return int(said[1]) / 10 ** (len(said[1]) - _DIGITS), file.name
    return file.stat().st_mtime * 1000, file.name


def _rank(file: Path) -> int | None:
    """By the trace, or else by its name."""
    if not file.name.endswith(NSYS):
        text = TraceText(file)
        if text.begins() and (rank := text.place[0]) is not None:
            return rank
    named = _RANK.search(file.name)
    return int(named[1]) if named else None
