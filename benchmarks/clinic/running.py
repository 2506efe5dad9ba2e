"""Runs a variant: alone, or beside the neighbours that its case asks for."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .case import Program

TIMEOUT_S = 180
_RATE = re.compile(r"(\d+(?:\.\d+)?) (\w+)s/s\s*$", re.MULTILINE)
"""The last line that a program prints: its own rate after the first steps."""
_BUSY = "while True: pass"


@contextmanager
def folder(program: Program) -> Iterator[Path]:
    """A new directory with the program in it."""
    with tempfile.TemporaryDirectory(prefix="clinic-") as scratch:
        (Path(scratch) / program.file).write_text(program.source)
        yield Path(scratch)


def environment(program: Program) -> dict[str, str]:
    """The user's, with one thread unless the case says otherwise."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **program.environment}


def command(program: Program) -> list[str]:
    """Without perfdoctor."""
    if not program.case.launcher:
        return [sys.executable, program.file]
    tool, *options = program.case.launcher
    return [str(Path(sys.executable).with_name(tool)), *options, program.file]


@contextmanager
def surroundings(program: Program) -> Iterator[None]:
    """The neighbours of the case; they end with the block."""
    # Each in a session of its own: the kernel's scheduler shares the CPUs among sessions first.
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True) for _ in range(program.neighbours)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(argv: Sequence[str], program: Program, where: Path) -> subprocess.CompletedProcess[str]:
    """In a process group of its own, which is ended when it takes too long."""
    with (
        surroundings(program),
        subprocess.Popen(
            list(argv),
            cwd=where,
            env=environment(program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            out, err = process.communicate()
            err += f"\nended after {TIMEOUT_S} s"
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def rate(program: Program) -> float:
    """Units per second of the program run by itself. Raises RuntimeError when it prints none."""
    with folder(program) as where:
        done = run(command(program), program, where)
    found = _RATE.findall(done.stdout)
    if done.returncode or not found:
        raise RuntimeError(
            f"{program.case.name}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}"
        )
    return float(found[-1][0])
