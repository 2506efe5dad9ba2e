"""What the user asked to run, as an argument vector. Looks at files, starts nothing."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import PerfdoctorError

OutputMode = Literal["live", "passthrough", "file"]
"""Where the job's output goes: below a live view, past us unchanged, or into a file."""


@dataclass(frozen=True, slots=True)
class Command:
    """A job, ready to start."""

    argv: tuple[str, ...]
    name: str
    """Short, for the run directory and the report's title."""


def python_for_jobs() -> str:
    """The interpreter of the active virtual environment, else the one perfdoctor runs in.

    perfdoctor may live in an environment of its own (pipx); the user's project is where `activate` points.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix and os.access(python := f"{prefix}/bin/python", os.X_OK):
            return python
    return sys.executable


def script(python: str, path: str, arguments: Sequence[str]) -> Command:
    """`perfdoctor check train.py ARGS`. Raises PerfdoctorError when `path` is no Python program."""
    file = Path(path)
    if file.is_dir():
        if not (file / "__main__.py").is_file():
            raise PerfdoctorError(
                f"{path} is a directory without __main__.py",
                slug="script-not-python",
                advice="name the script, or use `perfdoctor check -m package.module`",
            )
    elif not file.is_file():
        raise PerfdoctorError(f"there is no script {path}", slug="script-missing", advice=_nearest(file, arguments))
    elif not _looks_like_python(file):
        raise PerfdoctorError(
            f"{path} is not a Python program",
            slug="script-not-python",
            advice=f"to observe the Python processes that it starts: perfdoctor check -- {_executable(file)} ...",
        )
    return Command((python, path, *arguments), file.stem)


def module(python: str, name: str, arguments: Sequence[str]) -> Command:
    """`perfdoctor check -m package.train ARGS`."""
    return Command((python, "-m", name, *arguments), name.rpartition(".")[2] or name)


def verbatim(argv: Sequence[str]) -> Command:
    """`perfdoctor check -- ANY COMMAND`. Raises PerfdoctorError when it cannot be found."""
    if not argv:
        raise nothing_to_run()
    if shutil.which(argv[0]) is None:
        raise PerfdoctorError(
            f"there is no command {argv[0]}",
            slug="command-missing",
            advice="check the spelling, or activate the environment that has it",
        )
    scripts = [Path(word).stem for word in argv[1:] if word.endswith(".py")]
    return Command(tuple(argv), scripts[0] if scripts else Path(argv[0]).name)


def nothing_to_run() -> PerfdoctorError:
    """The command line names no job."""
    return PerfdoctorError(
        "there is nothing to run",
        slug="nothing-to-run",
        advice="say what, after perfdoctor's own options: SCRIPT [ARGS], -m MODULE [ARGS], or -- COMMAND",
    )


def skips_site(argv: Sequence[str]) -> str:
    """The interpreter option among `argv` that keeps the probe out (`-I`, `-E`, `-S`), or ""."""
    if not argv or "python" not in Path(argv[0]).name:
        return ""
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            break
        for at, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return f"-{letter}"
            if letter in "cm":
                return ""  # what follows is the program's
            if letter in "WX":
                if at == len(word) - 1:
                    next(words, None)  # its value
                break
    return ""


def _looks_like_python(file: Path) -> bool:
    if file.suffix in (".py", ".pyw", ".pyz"):
        return True
    try:
        with file.open("rb") as opened:
            start = opened.read(256)
    except OSError:
        return False
    first = start.partition(b"\n")[0]
    return first.startswith(b"#!") and b"python" in first


def _executable(file: Path) -> str:
    return str(file) if os.access(file, os.X_OK) else f"bash {file}"


def _nearest(file: Path, arguments: Sequence[str]) -> str:
    if "/" not in str(file) and shutil.which(str(file)):
        return f"to run a command rather than a script: perfdoctor check -- {' '.join([str(file), *arguments])}"
    try:
        names = [entry.name for entry in file.parent.iterdir() if entry.suffix == ".py"]
    except OSError:
        return f"there is no directory {file.parent} either"
    close = difflib.get_close_matches(file.name, names, n=1)
    return f"did you mean {file.parent / close[0]}?" if close else "check the path"
