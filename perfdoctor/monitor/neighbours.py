"""Processes that are not the job's and used CPU beside it."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Collection, Iterable
from pathlib import Path, PurePath

from ..recording.host import NeighbourProcess, NeighbourSample
from .processes import TICKS_PER_SECOND, ProcessStat, read_text

LEAST_CPUS = 0.02
"""2 % of a core: below it a process is part of a machine's ordinary hum."""
MOST_LISTED = 10
COMMAND_CHARACTERS = 80
KERNEL_NAME_CHARACTERS = 15

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?$")
_INTERPRETER = re.compile(r"(perl|ruby|node|bash|dash|zsh|sh|julia|Rscript|php)[0-9.]*$")
_PYTHON_LONG_OPTION_WITH_VALUE = "--check-hash-based-pycs"


class Neighbours:
    """Differences of CPU time between scans."""

    def __init__(self, scan: Iterable[ProcessStat], root: Path = Path("/")) -> None:
        self._root = root
        self._read_ns = time.perf_counter_ns()
        self._ticks = {(stat.pid, stat.start): stat.ticks for stat in scan}
        self._users: dict[int, str] = {}

    def read(self, scan: Iterable[ProcessStat], ours: Collection[int]) -> NeighbourSample:
        """What others used since the last call, without the job's pids `ours` and perfdoctor itself."""
        now_ns = time.perf_counter_ns()
        interval_ns = max(1, now_ns - self._read_ns)
        before, self._read_ns, self._ticks = self._ticks, now_ns, {}
        used: list[tuple[float, ProcessStat]] = []
        for stat in scan:
            ticks = stat.ticks
            self._ticks[stat.pid, stat.start] = ticks
            # One that the last scan did not know was born since, so all its time counts.
            cpus = (ticks - before.get((stat.pid, stat.start), 0)) / TICKS_PER_SECOND / (interval_ns / 1e9)
            if cpus > LEAST_CPUS and stat.pid not in ours and stat.pid != os.getpid():
                used.append((cpus, stat))
        used.sort(key=lambda pair: (-pair[0], pair[1].pid))
        return NeighbourSample(
            interval_ns=interval_ns,
            top=tuple(
                NeighbourProcess(stat.pid, self._command(stat), self._user(stat.pid), round(cpus, 4))
                for cpus, stat in used[:MOST_LISTED]
            ),
        )

    def _command(self, stat: ProcessStat) -> str:
        try:
            arguments = read_text(str(self._root / f"proc/{stat.pid}/cmdline")).split("\0")
        except OSError:
            arguments = []  # it ended
        return describe(stat.name, arguments)

    def _user(self, pid: int) -> str:
        try:
            uid = (self._root / f"proc/{pid}").stat().st_uid
        except OSError:
            return "unknown"  # it ended
        # Kept, because a directory service may take its time.
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def describe(name: str, arguments: list[str]) -> str:
    """`python3 train.py` for an interpreter, otherwise the program's name alone.

    `name` is the kernel's, cut at 15 characters: the rest comes from the first argument when that is a path
    that agrees with it (a title set by the program itself is not). An option of an unknown meaning may be
    followed by a secret, so nothing after it is shown.
    """
    program = PurePath(arguments[0]).name if arguments else ""
    if len(name) >= KERNEL_NAME_CHARACTERS and program.startswith(name) and " " not in program:
        name = program
    if _PYTHON.match(program):
        name = f"{program} {_python_script(arguments[1:])}".strip()
    elif _INTERPRETER.match(program):
        script = arguments[1] if len(arguments) > 1 and not arguments[1].startswith("-") else ""
        name = f"{program} {PurePath(script).name}".strip()
    return name[:COMMAND_CHARACTERS]


def _python_script(arguments: list[str]) -> str:
    """The script's file name, or `-m module`, or "" for a program in the arguments or on stdin."""
    rest = iter(arguments)
    for argument in rest:
        if argument == _PYTHON_LONG_OPTION_WITH_VALUE:
            next(rest, None)
        elif argument in ("-", ""):
            return ""
        elif not argument.startswith("-"):
            return PurePath(argument).name
        elif not argument.startswith("--"):
            # Letters may be joined, and the value of c, m, W, X is the rest of the word or the next word.
            letter = re.search("[cmWX]", argument)
            if letter is None:
                continue
            value = argument[letter.end() :] or next(rest, "")
            if letter[0] in "cm":
                return f"-m {value}".strip() if letter[0] == "m" else ""
    return ""
