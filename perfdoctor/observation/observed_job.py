"""A job under observation: what has to run beside it is started and ended here, for every kind of launch."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ..errors import PerfdoctorError
from ..launch.control import ControlServer
from ..launch.job import Job
from ..monitor.sampler import HostSampler
from ..recording.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A running job and what watches it."""

    job: Job
    server: ControlServer
    sampler: HostSampler


def end_at_once(job: Job) -> None:
    """End a job that still runs; no impatient Ctrl-C gets between."""
    if job.poll() is not None:
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        job.end(grace_s=1.0)
    finally:
        signal.signal(signal.SIGINT, before)


def left(job: Job, server: ControlServer) -> str | None:
    """How a job left that was told to: None while it is there. Ray and Spark would take a rank that leaves for a
    failed one, so its ranks wait to be ended together with them, without the tracebacks of either."""
    if job.poll() is not None:
        return ""
    if not server.engine:
        return None
    engine = server.engine
    job.kill()
    # An engine that ran before the job ends its workers once it misses the driver.
    deadline = time.monotonic() + _WORKERS_S
    while (server.ranks or server.receiving) and time.monotonic() < deadline:
        server.poll(_POLL_S)
    return f"{engine} was ended with it, all processes at once"


_WORKERS_S = 15.0
"""Spark's standalone workers were gone 0.1 s after the driver; one that is cut off from its master takes longer."""
_POLL_S = 0.1


@contextmanager
def observed(
    directory: RunDirectory,
    start: Callable[[], Job],
    *,
    sampled: bool = True,
    end: Callable[[Job], None] = end_at_once,
) -> Iterator[ObservedJob]:
    """The job that `start` starts, with a control channel and, when `sampled`, samples of the machine; it has ended on
    leaving.

    Raises PerfdoctorError, and takes the directory away, when the job cannot be started.
    """
    with ExitStack() as stack:
        server = ControlServer(directory.path)
        stack.callback(server.close)
        try:
            job = start()
        except PerfdoctorError:
            shutil.rmtree(directory.path, ignore_errors=True)  # an empty recording helps nobody
            raise
        except OSError as error:
            raise cannot_write(directory, error) from error
        stack.callback(end, job)
        sampler = HostSampler(job.pid, directory.host_file)
        stack.callback(sampler.stop)
        if sampled:
            sampler.start()
        yield ObservedJob(job, server, sampler)


def cannot_write(directory: RunDirectory, error: OSError) -> PerfdoctorError:
    """The error for a place without room for a recording, which is taken away."""
    shutil.rmtree(directory.path, ignore_errors=True)
    return PerfdoctorError(
        f"cannot write to {directory.path}: {error.strerror or error}",
        slug="run-directory",
        advice="name a place with room with --runs DIR; the job was not started",
    )
