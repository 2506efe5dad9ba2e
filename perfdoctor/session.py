"""One observed run, from command to recording: starts what has to run, in the order it has to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from .config import Config
from .launch.command import Command
from .launch.control import ControlServer
from .launch.job import Ending, OutputMode, start, write_facts
from .monitor.cgroup import Cgroups
from .monitor.machine import read_machine, write_machine
from .monitor.sampler import HostSampler
from .observe import Goal, Progress, observe
from .recording.directory import RunDirectory

WINDOWS = ("sites", "ops")
"""The windows of `check`, in the order they open."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run and how."""

    command: Command
    config: Config
    to_end: bool
    output: OutputMode
    stdout: int | IO[bytes] | None = None
    """Where the job's stdout goes in `passthrough`; None is ours."""


def record(request: Request, directory: RunDirectory, show: Callable[[Progress], None]) -> Ending:
    """Run the job under observation and leave a complete recording in `directory`.

    Raises PerfdoctorError when the job cannot be started, KeyboardInterrupt on the second Ctrl-C.
    """
    machine = read_machine()
    write_machine(machine, directory.machine_file)
    groups = Cgroups()
    kills_before = groups.oom_kills()
    server = ControlServer(directory.path)
    began = time.monotonic()
    try:
        job = start(request.command, directory, windows=WINDOWS, output=request.output, stdout=request.stdout)
        sampler = HostSampler(job.pid, directory.host_file)
        sampler.start()
        try:
            config = request.config
            goal = Goal(config.steps, config.seconds, config.patience_s, request.to_end, WINDOWS)
            ending = observe(job, server, sampler, goal, show)
        finally:
            sampler.stop()
    finally:
        server.close()
    ending = _with_kernel(ending, kills_before, groups.oom_kills())
    write_facts(
        directory,
        end=ending.kind,
        exit_code=ending.exit_code,
        signal=ending.signal,
        detail=ending.detail,
        elapsed_s=round(time.monotonic() - began, 3),
    )
    return ending


def _with_kernel(ending: Ending, before: int | None, after: int | None) -> Ending:
    """Say so when the kernel ended a process of this control group for want of memory."""
    if ending.kind in ("killed", "crashed") and before is not None and after is not None and after > before:
        return Ending(ending.kind, ending.exit_code, ending.signal, "out of memory: the kernel ended a process")
    return ending
