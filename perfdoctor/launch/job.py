"""Starts the job unchanged, keeps run.json, and knows how the job ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from ..errors import PerfdoctorError
from ..exits import Exit
from ..injected._perfdoctor_probe import records
from ..recording.directory import RunDirectory
from ..version import VERSION
from . import tree
from .command import Command, OutputMode
from .environment import job_environment, recorded
from .masking import masked

_FACTS_BYTES = 4000
"""run.json is padded to this, less than a block of any disk: how the job ended fits in where its start did."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the job ended; kinds as in `evidence.model.JobEnd`."""

    kind: str
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    problems: tuple[str, ...] = ()
    """What the recording lacks, and why."""
    ended_ns: int = 0
    """When its last process of ours was gone, by CLOCK_MONOTONIC, as recordings have it; 0 where nobody saw it."""

    @property
    def how(self) -> str:
        """`exit code 1`, `signal 9 (SIGKILL)`."""
        return signal_name(self.signal) if self.exit_code is None else f"exit code {self.exit_code}"


class Job:
    """A running job."""

    def __init__(
        self,
        command: Command,
        process: subprocess.Popen[bytes],
        processes: tree.JobProcesses,
        directory: RunDirectory,
    ) -> None:
        self.command = command
        self.process = process
        self.processes = processes
        self.directory = directory
        self.started = time.monotonic()

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """The exit status once the job has ended; negative for a signal, as in subprocess."""
        tree.reap(self.pid)
        return self.process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; None when it did not come in time."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self, grace_s: float = 5.0) -> None:
        """End it with all its processes."""
        self.processes.end(self.pid, grace_s)
        self.wait(5.0)

    def kill(self) -> None:
        """End it with all its processes, and without a word of theirs."""
        self.processes.kill(self.pid)
        self.wait(5.0)

    def end_orphans(self) -> None:
        """After the job has ended: end what it left behind in our process tree."""
        if self.processes.living():
            self.processes.end(self.pid, grace_s=1.0)

    def ended_by_itself(self, status: int) -> Ending:
        """What an exit status means that perfdoctor did not cause."""
        if status == 0:
            return Ending("finished", 0)
        if status < 0:
            return Ending("killed", None, -status)
        if status > 128 and status - 128 in set(signal.Signals):
            # How a shell, and torchrun's agent, report a child that a signal killed.
            return Ending("crashed", status, None, f"probably {signal_name(status - 128)} in a child")
        return Ending("crashed", status)


def start(
    command: Command,
    directory: RunDirectory,
    *,
    windows: Sequence[str],
    usable_cpus: float | None = None,
    output: OutputMode,
    stdout: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    apart: bool = False,
    keep_trace: bool = False,
    sample: bool = False,
) -> Job:
    """Start the job with the probe on its path; `stdout` replaces ours in `passthrough`. `keep_trace`: of the operator
    window, as torch's profiler writes it. `sample`: stacks.

    `apart`: in a process group of its own and without our stdin. Should we be killed while processes of the group
    are stopped, the kernel lets them go on and hangs up on them, for nobody else could.

    Raises PerfdoctorError when the program cannot be started.
    """
    base = os.environ if environment is None else environment
    facts = {
        "command": masked(command.argv),
        "cwd": str(cwd or Path.cwd()),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "version": VERSION,
        "environment": recorded(base),
        "host": os.uname().nodename,
        "boot": _boot(),
    }
    write_facts(directory, **facts)
    processes = tree.JobProcesses()
    # What we have printed comes before what the job prints.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    out: int | IO[bytes] | None = stdout
    err: int | None = None
    if output != "passthrough":
        out = err = os.open(directory.job_output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            command.argv,
            env=job_environment(base, directory.path, windows, usable_cpus, keep_trace=keep_trace, sample=sample),
            cwd=cwd,
            stdin=subprocess.DEVNULL if apart else None,
            stdout=out,
            stderr=err,
            preexec_fn=os.setpgrp if apart else None,
        )
    except OSError as error:
        raise cannot_start(command, error) from error
    finally:
        if err is not None:
            os.close(err)
    return Job(command, process, processes, directory)


def _boot() -> str:
    """As the probe has it: which of the job's processes run on this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cannot_start(command: Command, error: OSError) -> PerfdoctorError:
    """What to say of a program that the system refuses to start."""
    return PerfdoctorError(
        f"cannot start {command.argv[0]}: {error.strerror}",
        slug="cannot-start",
        advice="check that it is executable",
        exit_code=Exit.USAGE,
    )


def write_facts(directory: RunDirectory, **facts: object) -> None:
    """Add `facts` to run.json, which is replaced as a whole so that it is never half written.

    Raises OSError. On a disk that is full by now, the file is written over instead: it takes up a block already.
    """
    try:
        known = json.loads(directory.run_file.read_text())
    except (OSError, ValueError):
        known = {"schema": f"perfdoctor.run/{records.VERSION}"}
    known.update(facts)
    text = json.dumps(known, indent=1, sort_keys=True).ljust(_FACTS_BYTES) + "\n"
    temporary = directory.run_file.with_suffix(".tmp")
    try:
        temporary.touch(mode=0o600)
        temporary.write_text(text)
        temporary.replace(directory.run_file)
    except OSError:
        temporary.unlink(missing_ok=True)
        if not directory.run_file.exists():
            raise
        with directory.run_file.open("r+") as file:
            file.write(text)
            file.truncate()


def signal_name(number: int | None) -> str:
    """`signal 9 (SIGKILL)`."""
    try:
        return f"signal {number} ({signal.Signals(number).name})" if number is not None else "a signal"
    except ValueError:
        return f"signal {number}"
