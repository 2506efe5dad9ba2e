"""One observed run, from command to recording: starts what has to run, in the order it has to."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Protocol

from ..config.settings import Config
from ..diagnosis.measured import Trial
from ..errors import PerfdoctorError
from ..launch.command import Command, OutputMode
from ..launch.job import Ending, start, write_facts
from ..monitor.cgroup import Cgroups
from ..monitor.machine import read_machine, write_machine
from ..recording.digesting import world_size, write_digest
from ..recording.directory import RunDirectory
from ..recording.model import MANY
from .debug_allocator import time_debug_allocator
from .enough import Goal
from .observed_job import cannot_write, observed
from .relaunch import Launcher
from .running_job import RunningJob
from .vector_extensions import time_vector_extensions
from .watch import Progress, Terminated, observe

WINDOWS = ("sites", "ops", "lines", "repeats", "locks", "same")
"""The windows of `check`, in the order they open."""
COUNTING = ("counters", *WINDOWS)
"""Those of a run that others are compared with."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run and how."""

    command: Command
    config: Config
    to_end: bool
    output: OutputMode
    stdout: int | IO[bytes] | None = None
    """Where the job's stdout goes in `passthrough`; None is ours."""
    windows: tuple[str, ...] = WINDOWS
    environment: Mapping[str, str] | None = None
    """None is ours."""
    cwd: Path | None = None
    keep_trace: bool = False
    """Of the operator window."""
    samples: int = 0
    """Of stacks, to wait for; 0 where none are taken."""


class Experiments(Protocol):
    """What is done with the running job once enough of it was seen: trials of remedies."""

    def prove(self, job: RunningJob) -> str:
        """Returns what was being tried when the job ended; "" when nothing was."""

    def launch(self, launcher: Launcher, say: Callable[[str, Trial | None], None]) -> None:
        """What needs launches of its own, once the job has ended."""

    def close(self) -> None:
        """Write down what was tried."""


def record(
    request: Request,
    directory: RunDirectory,
    show: Callable[[Progress], None],
    experiments: Experiments | None = None,
    facts: Mapping[str, float | None] = MappingProxyType({}),
) -> Ending:
    """Run the job under observation and leave a complete recording in `directory`; `facts` are for its run.json.

    Raises PerfdoctorError when the job cannot be started, KeyboardInterrupt on the second Ctrl-C.
    """
    try:
        machine = read_machine()
        write_machine(machine, directory.machine_file)
    except OSError as error:
        raise cannot_write(directory, error) from error
    groups = Cgroups()
    kills_before = groups.oom_kills()
    began = time.monotonic()
    ending = Ending("interrupted")
    config = request.config
    goal = Goal(config.steps, config.seconds, config.patience_s, request.to_end, request.windows, request.samples)
    begin = partial(
        start,
        request.command,
        directory,
        windows=request.windows,
        usable_cpus=machine.usable_cpus,
        output=request.output,
        stdout=request.stdout,
        environment=request.environment,
        cwd=request.cwd,
        keep_trace=request.keep_trace,
        sample=request.samples > 0,
    )
    try:
        with signals_as_interrupts():
            with observed(directory, begin) as job:
                ending = observe(job, goal, show, experiments.prove if experiments else None)
            if experiments is not None and ending.kind == "stopped":
                launcher = Launcher(request.command, directory, os.environ, config.patience_s)
                experiments.launch(launcher, partial(_say, show, time.monotonic() - began))
    finally:
        if experiments is not None:
            experiments.close()
        ending = _with_kernel(ending, kills_before, groups.oom_kills())
        elapsed_s = round(time.monotonic() - began, 3)
        _write_ending(directory, ending, elapsed_s=elapsed_s, **facts)
        leave_digest(directory)
    if ending.kind in ("finished", "stopped"):
        with contextlib.suppress(KeyboardInterrupt):  # the job is over and recorded: only its timings are lost
            time_vector_extensions(directory, os.environ)
            time_debug_allocator(directory, os.environ)
    return ending


def leave_digest(directory: RunDirectory) -> None:
    """Of a job of many ranks: it is judged by the digests of its nodes."""
    try:
        if directory.run_file.exists() and world_size(directory) > MANY:
            write_digest(directory)
    except (OSError, PerfdoctorError) as error:
        print(f"perfdoctor: no digest of this node could be written: {error}", file=sys.stderr)


def _say(show: Callable[[Progress], None], elapsed_s: float, phase: str, trial: Trial | None) -> None:
    """What happens once the job has ended."""
    show(Progress(phase, elapsed_s, trial=trial, in_trials=True))


def _write_ending(directory: RunDirectory, ending: Ending, **facts: float | None) -> None:
    if not directory.run_file.exists():
        return  # the job never started
    ended = asdict(ending)
    try:
        write_facts(directory, end=ended.pop("kind"), **ended, **facts)
    except OSError as error:
        print(f"perfdoctor: how the job ended could not be recorded: {error.strerror}", file=sys.stderr)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """SIGTERM (a scheduler's time is up) and SIGHUP (the terminal is gone) must not leave the job running alone."""

    def interrupt(number: int, frame: object) -> None:
        raise Terminated

    # What a caller has set to be ignored (nohup) stays ignored.
    taken = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _with_kernel(ending: Ending, before: int | None, after: int | None) -> Ending:
    """Say so when the kernel ended a process of this control group for want of memory."""
    if ending.kind in ("killed", "crashed") and before is not None and after is not None and after > before:
        return replace(ending, detail="out of memory: the kernel ended a process")
    return ending
