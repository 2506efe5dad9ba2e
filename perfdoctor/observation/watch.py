"""Watches a running job until there is enough evidence (`enough`), then ends it. A job that ends earlier is judged on
what it gave."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..diagnosis.measured import Trial
from ..launch.control import Beat
from ..launch.job import Ending
from ..recording.host import HostSample
from ..recording.reader import ProcessFile
from .enough import Enough, Goal
from .observed_job import ObservedJob, end_at_once, left
from .running_job import MARGIN_S, RunningJob, common_step, step_s
from .together import Together

POLL_S = 0.1
_READ_S = 0.5
"""Between two looks at the lead rank's file, which the probe writes twice a second."""
_FAILING_S = 10.0
"""A disk that stays full for so long stays full: what cannot be written is not worth waiting for."""
_GRACE_S = 10.0
"""For a job to leave after it was told to stop at a step, before SIGTERM; at least three of its steps."""
_AGAIN, _AGAIN_S = 25, 30.0
"""Passes that it makes again after its last step, each about as long as one, and the time for them at most."""
_HELLOS_S = 5.0
"""For ranks of this machine that are slower to their first step than the one that was looked at."""
_AGREEING_S = 8.0
"""For ranks of several nodes to meet, agree on a step and leave there, where somebody is in a hurry."""

INTERRUPTED = "stopping the job; Ctrl-C again ends it at once"
"""The phase after the first Ctrl-C, worth telling a user in whatever form."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How it goes, for a live view. Rates cover the time since the last one."""

    phase: str
    elapsed_s: float
    step: int = 0
    beat: Beat = field(default_factory=Beat)
    host: HostSample | None = None
    rows: ProcessFile | None = None
    """The lead rank's file, as far as read."""
    trial: Trial | None = None
    """One that has just ended."""
    done: float | None = None
    """Share of what is to be observed; None where the job's end is the goal."""
    in_trials: bool = False
    """Whether enough was observed, and remedies are tried."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP reached perfdoctor: ends the observation as Ctrl-C does."""


class _Watch:
    """What has been seen so far."""

    def __init__(self, seen: ObservedJob, goal: Goal) -> None:
        self.job = seen.job
        self.server = seen.server
        self.sampler = seen.sampler
        self.goal = goal
        self.lead: ProcessFile | None = None
        self.seen = Enough(goal)
        self.together = Together(seen.server)
        self.read = self.progressed = self.written = time.monotonic()
        self.last_step = -1
        self.failure = ""
        """Why the probe could not write, when last it could not."""

    @property
    def step(self) -> int:
        """How far the job has come; -1 before its first step."""
        heard = max((rank.step for rank in self.server.ranks), default=-1)
        on_disk = self.lead.step_count if self.lead else 0
        return max(heard, on_disk or -1)

    def progress(self, phase: str = "") -> Progress:
        """Everything since the last call, summed over the lead rank's beats."""
        beat = Beat()
        for lead in self.server.ranks[:1]:
            beat, lead.beat = lead.beat, Beat()
        return Progress(
            phase=phase or self._phase(),
            step=max(0, self.step),
            beat=beat,
            elapsed_s=time.monotonic() - self.job.started,
            host=self.sampler.latest,
            rows=self.lead,
            done=self.seen.done,
        )

    def _phase(self) -> str:
        if self.step < 0:
            return "starting"
        if self.together.phase:
            return self.together.phase
        if self.goal.to_end:
            return "observing until the job ends"
        return self.seen.phase if self.seen.steps else "warming up"

    def stalled(self) -> bool:
        """No step, or no further one, for longer than the user's patience."""
        step = self.step
        if step != self.last_step:
            self.last_step = step
            self.progressed = time.monotonic()
        if self.goal.to_end and step >= 0:
            return False
        return time.monotonic() - self.progressed > self.goal.patience_s

    def refresh(self) -> bool:
        """Read on in the lead rank's file, from time to time. Whether it did."""
        now = time.monotonic()
        if now - self.read < _READ_S:
            return False
        self.read = now
        self.read_on()
        self.sampler.others = {rank.peer for rank in self.server.ranks if rank.peer}
        failures = [rank.failure for rank in self.server.ranks if rank.failure]
        if self.server.ranks:
            self.failure = failures[0] if failures else ""
        if not failures:
            self.written = now
        return True

    def read_on(self) -> None:
        """Read on in the lead rank's file."""
        if self.lead is None or self._has_left(self.lead):
            self.lead, self.seen = self._find_lead(), Enough(self.goal)
        elif not self.lead.path.exists():
            self.lead = None
        if self.lead is not None:
            try:
                self.lead.refresh()
            except OSError:
                self.lead = None

    def _has_left(self, lead: ProcessFile) -> bool:
        """Whether only others are there: the engine has started the ranks anew."""
        there = {rank.pid for rank in self.server.ranks}
        return bool(there) and 0 not in there and int(lead.path.name.split("-")[1]) not in there

    def _find_lead(self) -> ProcessFile | None:
        """The file of the first rank that spoke up; without a control channel, or when it is gone, one with steps."""
        directory = self.job.directory
        if self.server.ranks:
            paths = sorted(directory.path.glob(f"process-{self.server.ranks[0].pid}-*.jsonl"), reverse=True)
            files = [ProcessFile(path) for path in paths]
            # Of a rank that speaks to us from another machine, what it sends is the only one.
            return next((file for file in files if _is_ours(file)), next(iter(files), None))
        if not self.server.problem and self.job.poll() is None:
            return None
        for path in directory.process_files():
            file = ProcessFile(path)
            try:
                file.refresh()
            except OSError:
                continue
            if file.step_count:
                return file
        return None

    def enough(self) -> bool:
        """Whether the evidence in what was read suffices, or no more will come."""
        if self.goal.to_end or self.together.asked:
            return False
        if time.monotonic() - self.written > _FAILING_S:
            return True
        process = self.lead.recording() if self.lead else None
        return process is not None and self.seen.look(process)

    def problems(self) -> tuple[str, ...]:
        """What the recording lacks, for the report."""
        failures = dict.fromkeys((self.failure, *(rank.failure for rank in self.server.ranks)))
        lost = [f"some of what the probe saw could not be written: {failure}" for failure in failures if failure]
        return (*([self.server.problem] if self.server.problem else []), *lost)


def _is_ours(file: ProcessFile) -> bool:
    """Whether its process is one of this machine's, whose number it may share with one of another's."""
    with contextlib.suppress(OSError):
        file.refresh()
    process = file.recording()
    return process is not None and process.header.host in ("", os.uname().nodename)


def observe(
    seen: ObservedJob,
    goal: Goal,
    show: Callable[[Progress], None],
    prove: Callable[[RunningJob], str] | None = None,
) -> Ending:
    """Until the job ends or there is enough; in every case the job has ended on return. Before it is ended, `prove`
    may make trials on it; it returns the remedy that it was trying when the job ended, if that is what happened.

    The first Ctrl-C (or SIGTERM) stops observing and lets what there is be judged; the second one is raised.
    """
    watch, job = _Watch(seen, goal), seen.job
    seen.server.wake_at_end(job.pid)
    try:
        ending = _until_the_end(watch, show, prove)
    except KeyboardInterrupt as interrupt:
        show(watch.progress(INTERRUPTED))
        ending = _interrupted(watch, interrupt)
    finally:
        end_at_once(job)
    ended_ns = time.perf_counter_ns()
    watch.read_on()
    show(watch.progress("the job has ended"))
    if ending.kind in ("stopped", "timeout", "interrupted"):
        # What a job leaves running on purpose when it ends by itself is its own business.
        job.end_orphans()
    return replace(ending, problems=watch.problems(), ended_ns=ended_ns)


def _until_the_end(
    watch: _Watch, show: Callable[[Progress], None], prove: Callable[[RunningJob], str] | None
) -> Ending:
    job, server, together = watch.job, watch.server, watch.together
    shown = 0.0
    while True:
        server.poll(POLL_S)
        together.look()
        status = job.poll()
        if status is not None:
            return together.ending(job.ended_by_itself(status))
        if server.engine:
            return Ending("stopped", detail=left(job, server) or "")
        if together.cannot and server.hears_each:
            return _stop(watch)
        if together.overdue:
            job.end()
            return Ending("stopped", detail="its ranks had left and it was terminated")
        if watch.refresh() and watch.enough():
            if prove is not None and server.ranks:
                tried = prove(_bench(watch, show))
                status = job.poll()
                if status is not None:
                    return _ended_in_a_trial(job.ended_by_itself(status), tried)
            if server.hears_all:
                show(watch.progress("stopping the job"))
                return _stop(watch)
            together.ask("")
        if watch.stalled():
            detail = _stall_detail(watch)
            job.end()
            return Ending("timeout", detail=detail)
        if time.monotonic() - shown >= POLL_S:
            shown = time.monotonic()
            show(watch.progress())


def _ended_in_a_trial(ending: Ending, remedy: str) -> Ending:
    """A job that fails while a remedy is tried on it is not blamed for that: it is thrown away afterwards anyway."""
    if not remedy or ending.kind == "finished":
        return ending
    return Ending("stopped", detail=f"it ended with {ending.how} while {remedy} was tried on it")


def _bench(watch: _Watch, show: Callable[[Progress], None]) -> RunningJob:
    def read() -> ProcessFile | None:
        watch.read_on()
        return watch.lead

    def say(phase: str, trial: Trial | None) -> None:
        show(replace(watch.progress(phase), trial=trial, in_trials=True))

    return RunningJob(watch.job, watch.server, read, say)


def _stall_detail(watch: _Watch) -> str:
    if watch.step < 0:
        return f"no step within {watch.goal.patience_s:g} s"
    return f"no step after step {watch.step} for {watch.goal.patience_s:g} s"


def _stop(watch: _Watch) -> Ending:
    """Ask every rank to leave at the same step, so that none is left waiting in a collective."""
    job, server = watch.job, watch.server
    if not server.ranks:
        job.end()
        return Ending("stopped", detail="it could not be told to leave at a step and was terminated")
    deadline = time.monotonic() + _HELLOS_S
    while not server.hears_each and job.poll() is None and time.monotonic() < deadline:
        server.poll(POLL_S)
    slowest = max((step_s(rank) for rank in server.ranks), default=0.0)
    last = common_step(server.ranks, margin=len(server.ranks) > 1)
    for rank in server.ranks:
        server.send(rank, {"do": "stop", "step": last})
    how = _leaving(watch, max(_GRACE_S, 3 * slowest + MARGIN_S, min(_AGAIN_S, _AGAIN * slowest)))
    if how is not None:
        return Ending("stopped", detail=how)
    job.end()
    return Ending("stopped", detail="it did not leave at the step it was told to and was terminated")


def _leaving(watch: _Watch, patience_s: float) -> str | None:
    """Wait for a job that was told to leave, and say how it did (`left`)."""
    deadline = time.monotonic() + patience_s
    while (how := left(watch.job, watch.server)) is None and time.monotonic() < deadline:
        watch.server.poll(POLL_S / 2)
        watch.together.look()
        if watch.together.cannot:
            break
    return how


def _interrupted(watch: _Watch, interrupt: KeyboardInterrupt) -> Ending:
    """End the job, gently: it may have got the signal too, and be saving its work."""
    job, server = watch.job, watch.server
    if server.hears_all:
        for rank in server.ranks:
            server.send(rank, {"do": "stop", "step": 0})
    else:
        watch.together.ask(f"perfdoctor was interrupted on {os.uname().nodename}")
    if isinstance(interrupt, Terminated):
        patience_s = 2.0 if server.hears_all else _AGREEING_S
    elif _terminal_told_the_job():
        patience_s = _GRACE_S
    elif not server.hears_all:
        patience_s = _AGREEING_S
    else:
        patience_s = 3.0
        if job.wait(1.0) is None:
            job.process.send_signal(signal.SIGINT)
    if _leaving(watch, patience_s) is None:
        job.end()
    return Ending("interrupted")


def _terminal_told_the_job() -> bool:
    """Whether Ctrl-C was typed, so that the terminal has sent it to the job as well."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        try:
            return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            continue
    return False


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
