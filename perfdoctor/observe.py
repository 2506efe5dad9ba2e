"""Watches a running job until there is enough evidence, then ends it: the only place that decides when.

Enough means: the wanted number of steady steps or seconds, every planned window seen, the windows no more than
5 % of what was observed, and two seconds of samples from outside. A job that ends earlier is judged on what it
gave.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .evidence import steady
from .evidence.model import Missing
from .launch.control import ControlServer, Rank
from .launch.job import Ending, Job
from .monitor.sampler import HostSampler
from .monitor.sources import HostReading
from .recording.model import ProcessRecording
from .recording.reader import ProcessFile

POLL_S = 0.1
_JUDGE_S = 0.5
_WINDOW_SHARE = 0.05
_LEAST_SECONDS = 2.0
"""Four samples of the machine: fewer say nothing about neighbours."""
_GRACE_S = 10.0
"""For a job to leave after it was told to stop at a step, before SIGTERM; at least three of its steps."""
_MARGIN_S = 0.4
"""How far ahead the common last step of several ranks is set."""


@dataclass(frozen=True, slots=True)
class Goal:
    """How much to observe."""

    steps: int
    seconds: float
    patience_s: float
    to_end: bool
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How it goes, for a live view. Rates cover the time since the last one."""

    phase: str
    step: int
    steady_steps: int
    steps: int
    wall_us: int
    wait_us: int
    samples: int
    gc_count: int
    gc_us: int
    elapsed_s: float
    host: HostReading | None
    rows: ProcessFile | None
    """The lead rank's file, as far as read."""


class _Watch:
    """What has been seen so far."""

    def __init__(self, job: Job, server: ControlServer, sampler: HostSampler, goal: Goal) -> None:
        self.job = job
        self.server = server
        self.sampler = sampler
        self.goal = goal
        self.lead: ProcessFile | None = None
        self.steady_steps = 0
        self.judged = 0.0
        self.progressed = time.monotonic()
        self.last_step = -1

    def progress(self, phase: str) -> Progress:
        """Everything since the last call, summed over the lead rank's beats."""
        lead = self.server.ranks[0] if self.server.ranks else None
        beat = lead.beat if lead else None
        progress = Progress(
            phase=phase,
            step=lead.step if lead else 0,
            steady_steps=self.steady_steps,
            steps=beat.steps if beat else 0,
            wall_us=beat.wall_us if beat else 0,
            wait_us=beat.wait_us if beat else 0,
            samples=beat.samples if beat else 0,
            gc_count=beat.gc if beat else 0,
            gc_us=beat.gc_us if beat else 0,
            elapsed_s=time.monotonic() - self.job.started,
            host=self.sampler.latest,
            rows=self.lead,
        )
        if lead:
            lead.beat = replace(lead.beat, steps=0, wall_us=0, wait_us=0, samples=0, gc=0, gc_us=0)
        return progress

    def stalled(self) -> bool:
        """No step, or no further one, for longer than the user's patience."""
        step = max((rank.step for rank in self.server.ranks), default=-1)
        if step != self.last_step:
            self.last_step = step
            self.progressed = time.monotonic()
        return time.monotonic() - self.progressed > self.goal.patience_s

    def refresh(self) -> None:
        """Read on in the lead rank's file."""
        if self.lead is None and self.server.ranks:
            pid = self.server.ranks[0].pid
            files = sorted(self.job.directory.path.glob(f"process-{pid}-*.jsonl"))
            self.lead = ProcessFile(files[-1]) if files else None
        if self.lead is not None:
            try:
                self.lead.refresh()
            except OSError:
                self.lead = None

    def enough(self) -> bool:
        """Whether the evidence suffices."""
        now = time.monotonic()
        if self.goal.to_end or now - self.judged < _JUDGE_S:
            return False
        self.judged = now
        self.refresh()
        process = self.lead.recording() if self.lead else None
        if process is None:
            return False
        selection = steady.select(process)
        if isinstance(selection, Missing):
            return False
        self.steady_steps = selection.count
        seconds = float(selection.column("wall_us").sum()) / 1e6
        if seconds >= self.goal.seconds:
            return True
        return selection.count >= self.goal.steps and seconds >= _LEAST_SECONDS and self._windows_done(process, seconds)

    def _windows_done(self, process: ProcessRecording, seconds: float) -> bool:
        seen = {"ops": process.ops, "sites": process.call_sites}
        faults = {fault.hook for fault in process.faults}
        missing = [name for name in self.goal.windows if seen.get(name) is None and f"window {name}" not in faults]
        spent = process.samples[-1].window_us / 1e6 if process.samples else 0.0
        return not missing and spent <= _WINDOW_SHARE * seconds


def observe(
    job: Job, server: ControlServer, sampler: HostSampler, goal: Goal, show: Callable[[Progress], None]
) -> Ending:
    """Until the job ends or there is enough; in every case the job has ended on return.

    The first Ctrl-C stops observing and lets what there is be judged; the second one is raised.
    """
    watch = _Watch(job, server, sampler, goal)
    try:
        ending = _until_the_end(watch, show)
    except KeyboardInterrupt:
        ending = _interrupted(job, server)
    finally:
        if job.poll() is None:
            job.end(grace_s=1.0)
    if ending.kind in ("stopped", "timeout", "interrupted"):
        # What a job leaves running on purpose when it ends by itself is its own business.
        job.end_orphans()
    return ending


def _until_the_end(watch: _Watch, show: Callable[[Progress], None]) -> Ending:
    job, server = watch.job, watch.server
    while True:
        server.poll(POLL_S)
        status = job.poll()
        if status is not None:
            return job.ended_by_itself(status)
        if watch.enough():
            show(watch.progress("stopping"))
            return _stop(job, server)
        if watch.stalled():
            detail = _stall_detail(server, watch.goal)
            job.end()
            return Ending("timeout", detail=detail)
        show(watch.progress(_phase(server, watch)))


def _phase(server: ControlServer, watch: _Watch) -> str:
    if not server.ranks:
        return "starting"
    return "observing" if watch.steady_steps else "warming up"


def _stall_detail(server: ControlServer, goal: Goal) -> str:
    if not server.ranks:
        return f"no step within {goal.patience_s:g} s"
    return f"no step after step {max(rank.step for rank in server.ranks)} for {goal.patience_s:g} s"


def _stop(job: Job, server: ControlServer) -> Ending:
    """Ask every rank to leave at the same step, so that none is left waiting in a collective."""
    step_s = max((_step_s(rank) for rank in server.ranks), default=0.0)
    margin = math.ceil(_MARGIN_S / step_s) + 1 if step_s > 0 else 1
    last = max((rank.step for rank in server.ranks), default=0)
    # A rank's own count since its last beat is unknown: half a second's worth lies between.
    last += math.ceil(0.5 / step_s) + margin if step_s > 0 and len(server.ranks) > 1 else 0
    for rank in server.ranks:
        server.send(rank, {"do": "stop", "step": last})
    deadline = time.monotonic() + max(_GRACE_S, 3 * step_s + _MARGIN_S)
    while time.monotonic() < deadline:
        server.poll(POLL_S / 2)
        if job.poll() is not None:
            return Ending("stopped")
    job.end()
    return Ending("stopped", detail="it did not leave at the step it was told to and was terminated")


def _step_s(rank: Rank) -> float:
    return rank.total.wall_us / rank.total.steps / 1e6 if rank.total.steps else 0.0


def _interrupted(job: Job, server: ControlServer) -> Ending:
    """Ctrl-C: the terminal has told the job too, unless only we got the signal."""
    if job.wait(0.5) is None:
        ending = _stop_soon(job, server)
        if not ending:
            os.kill(job.pid, signal.SIGINT)
            if job.wait(3.0) is None:
                job.end()
    return Ending("interrupted")


def _stop_soon(job: Job, server: ControlServer) -> bool:
    for rank in server.ranks:
        server.send(rank, {"do": "stop", "step": 0})
    return bool(server.ranks) and job.wait(2.0) is not None


def output_tail(path: Path, lines: int) -> Sequence[str]:
    """The last lines of a growing file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    # A progress bar rewrites its line with carriage returns; only the last state is worth showing.
    return [line.rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")][-lines:]
