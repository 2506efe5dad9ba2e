"""Runs a variant: alone, beside the neighbours that its case asks for, or in a group with a CPU quota."""

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

import psutil

from . import quota
from .case import Program

TIMEOUT_S = 180
THREADS = "CLINIC_THREADS"
"""The variable with the threads that a program is told to use; users tell it none."""
_RATE = re.compile(r"(\d+(?:\.\d+)?) (\w+)s/s\s*$", re.MULTILINE)
"""The last line that a program prints: its own rate after the first steps."""
_BUSY = "while True: pass"
_MODULES = {"torchrun": "torch.distributed.run"}


@contextmanager
def folder(program: Program) -> Iterator[Path]:
    """A new directory with the program in it."""
    with tempfile.TemporaryDirectory(prefix="clinic-") as scratch:
        (Path(scratch) / program.file).write_text(program.source)
        yield Path(scratch)


def environment(program: Program) -> dict[str, str]:
    """The user's, without a variable for threads unless the case or `THREADS` says otherwise."""
    asked = {**os.environ, "OMP_NUM_THREADS": os.environ.get(THREADS, ""), "PYTHONHASHSEED": "0", **program.environment}
    return {name: value for name, value in asked.items() if value}


def command(program: Program) -> list[str]:
    """Without perfdoctor."""
    if not program.case.launcher:
        return [sys.executable, program.file]
    tool, *options = program.case.launcher
    script = Path(sys.executable).with_name(tool)
    # An environment that borrows torch from another has the module, but not the script.
    start = [sys.executable, "-m", _MODULES[tool]] if tool in _MODULES and not script.exists() else [str(script)]
    return [*start, *options, program.file]


@contextmanager
def surroundings(program: Program) -> Iterator[list[str]]:
    """The neighbours and the quota of the case; they end with the block.

    Yields what to put before a command that is to run in them. Raises quota.NotAllowedError.
    """
    with contextlib.ExitStack() as stack:
        before = quota.joining(stack.enter_context(quota.group(program.quota))) if program.quota else []
        for _ in range(program.neighbours):
            stack.enter_context(_neighbour())
        yield before


@contextmanager
def _neighbour() -> Iterator[None]:
    # In a session of its own: the kernel's scheduler shares the CPUs among sessions first.
    process = subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(
    argv: Sequence[str], program: Program, where: Path, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """In a process group of its own, which is ended when it takes too long."""
    with (
        surroundings(program) as before,
        subprocess.Popen(
            [*before, *argv],
            cwd=where,
            env=environment(program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            out, err = process.communicate()
            err += f"\nended after {timeout_s:.0f} s"
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def _end(pid: int) -> None:
    """With all that it started, which may have left its process group: who holds the pipe keeps us waiting."""
    with contextlib.suppress(psutil.Error):
        for one in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with contextlib.suppress(psutil.Error):
                one.kill()


def rate(program: Program, before: Sequence[str] = ()) -> float:
    """Units per second of the program run by itself, `before` in front of its command. Raises RuntimeError when it
    prints none."""
    *words, file = command(program)
    counting = [str(Path(__file__).with_name("counted.py"))] if program.case.endless else []
    with folder(program) as where:
        done = run([*before, *words, *counting, file], program, where)
    found = _RATE.findall(done.stdout)
    # Ranks that are still in a collective when one of them has counted enough fail.
    if not found or (done.returncode and not counting):
        raise RuntimeError(
            f"{program.case.name}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}"
        )
    return float(found[-1][0])
