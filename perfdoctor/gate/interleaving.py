"""Two or three launches of a job take turns, slice by slice, so that what disturbs one arm disturbs all.

Every launch stands at a step boundary while another runs. Its other processes (data-loader workers) are stopped
meanwhile: batches made while nobody looks would hide the wait for data. They always go on again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit
from ..launch.command import Command
from ..launch.control import Rank, Turn
from ..launch.job import Job, start
from ..launch.tree import JobProcesses
from ..observation.observed_job import ObservedJob, observed
from ..recording.directory import RunDirectory
from .failure import STEP, JobFailedError, job_failed
from .plan import SLICES, is_warm, slice_steps, slices_for
from .samples import Sample

_POLL_S = 0.05
_LEAVE_S = 30.0
"""For a launch to leave after its last turn: it may time its operators."""
LEAST_SLICES = 10
"""Of a job that ends by itself: fewer say nothing."""


@dataclass(frozen=True, slots=True)
class Program:
    """What an arm runs, ready to be launched again and again."""

    title: str
    """For messages."""
    command: Command
    cwd: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """One arm, to be launched afresh."""

    name: str
    program: Program
    directory: RunDirectory
    windows: tuple[str, ...] = ()
    """To be opened while it warms up."""

    def start(self, usable_cpus: float) -> Job:
        """In a process group of its own."""
        return start(
            self.program.command,
            self.directory,
            windows=self.windows,
            usable_cpus=usable_cpus,
            output="file",
            environment=self.program.environment,
            cwd=self.program.cwd,
            apart=True,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a launch may take."""

    patience_s: float
    """Without any step."""
    usable_cpus: float
    slices: int = SLICES


def interleave(launches: Sequence[Launch], limits: Limits, rng: random.Random) -> dict[str, Sample]:
    """All launches at once, in turns; what each did, by name. All have ended on return.

    Raises JobFailedError, and KeyboardInterrupt for Ctrl-C.
    """
    tree = JobProcesses()
    running: list[_Running] = []
    try:
        with ExitStack() as stack:
            for launch in rng.sample(list(launches), len(launches)):
                begin = partial(launch.start, limits.usable_cpus)
                seen = observed(launch.directory, begin, sampled=bool(launch.windows), end=_end_group)
                running.append(_Running(launch, stack.enter_context(seen)))
                stack.callback(running[-1].resume)
            _Turns(running, limits, rng).take()
    finally:
        if tree.living():
            tree.end(running[0].seen.job.pid if running else 0, grace_s=1.0)
    return {one.launch.name: one.sample for one in running}


class _Running:
    """A launch that runs."""

    def __init__(self, launch: Launch, seen: ObservedJob) -> None:
        self.launch = launch
        self.seen = seen
        self.sample = Sample()
        self.stopped: list[int] = []
        if seen.server.problem:
            raise JobFailedError(
                f"the job cannot take turns: {seen.server.problem}", slug="no-control-channel", advice="use --runs DIR"
            )

    def rank(self) -> Rank | None:
        """The one that takes turns. Raises PerfdoctorError for a job of several."""
        ranks = self.seen.server.ranks
        if len(ranks) > 1:
            said = f"{self.launch.program.title}: a job of several ranks cannot take turns"
            raise JobFailedError(said, slug="several-ranks", advice="--schedule abba")
        return ranks[0] if ranks else None

    def turn(self) -> Turn | None:
        """What it did in the slice after which it waits; None while it does not wait."""
        rank = self.rank()
        return rank.turn if rank else None

    def status(self) -> int | None:
        """The exit status once it has ended. Not `Job.poll`, which would reap the other launches too."""
        return self.seen.job.process.poll()

    @property
    def leaves(self) -> bool:
        """Whether it has not ended yet, and does not wait to be ended with its engine either."""
        return self.status() is None and not self.seen.server.engine

    def tell(self, **command: object) -> None:
        """Pass a command down."""
        rank = self.rank()
        if rank is not None:
            self.seen.server.send(rank, command)

    def go(self, steps: int, collect: bool) -> None:
        """Its turn; with `collect`, after a full garbage collection."""
        rank = self.rank()
        if rank is not None:
            self.resume()
            rank.turn = None
            self.tell(do="go", steps=steps, collect=collect)

    def pause(self) -> None:
        """Stop everything but the training process itself, which waits."""
        for pid in _descendants(self.seen.job.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                self.stopped.append(pid)

    def resume(self) -> None:
        """Let them go on."""
        for pid in self.stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    def must_run(self) -> None:
        """Raises JobFailedError when it has ended badly."""
        status = self.status()
        if status is None or (status == 0 and self.rank() is not None):
            return
        name, output = self.launch.program.title, self.launch.directory.job_output
        if status == 0:
            raise JobFailedError(
                f"{name}: the job ended without a step",
                slug="no-step",
                advice=f"{STEP}; perfdoctor check SCRIPT shows what is seen",
                output=output,
            )
        raise job_failed(name, self.seen.job.ended_by_itself(status).how, output)


def _descendants(pid: int) -> list[int]:
    """All processes under `pid`. From /proc, which takes a fraction of a millisecond: it is asked in every slice."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                waiting += children
    return found


def _end_group(job: Job) -> None:
    """Whatever of its process group still runs, ends. The job is left for its owner to reap, and so are the others."""
    for grace_s, number in ((3.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
        if job.process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            os.killpg(job.pid, number)
        job.wait(grace_s)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The launches of one pair, in turns."""

    running: Sequence[_Running]
    limits: Limits
    rng: random.Random

    def take(self) -> None:
        """From the first step to the end of all."""
        self._wait_for_all()
        typical_ns = self._warm_up()
        steps = slice_steps(typical_ns)
        for number in range(min(self.limits.slices, slices_for(typical_ns, steps))):
            if not self._slice(steps, is_first=number == 0):
                if number < LEAST_SLICES:
                    raise self._too_short()
                break
        self._leave()

    def _wait_for_all(self) -> None:
        """Until every launch stands at its first step boundary."""
        deadline = time.monotonic() + self.limits.patience_s
        asked: set[int] = set()
        while late := [one for one in self.running if one.turn() is None]:
            for one in self.running:
                one.seen.server.poll(_POLL_S / len(self.running))
                one.must_run()
                if one.rank() is not None and id(one) not in asked:
                    asked.add(id(one))
                    one.tell(do="turns")
                if one.turn() is not None and not one.stopped:
                    one.pause()
            if time.monotonic() > deadline:
                titles = ", ".join(one.launch.program.title for one in late)
                raise JobFailedError(
                    f"no step within {self.limits.patience_s:g} s: {titles}",
                    slug="no-step",
                    advice=f"{STEP}; wait longer with --patience SECONDS",
                )
        for one in self.running:
            rank = one.rank()
            one.sample.sources = tuple(rank.sources) if rank else ()

    def _warm_up(self) -> float:
        """Until steps are steady and no window is open; the length of a step, nanoseconds."""
        seen: list[list[int]] = [[] for _ in self.running]
        while True:
            for number in self.rng.sample(range(len(self.running)), len(self.running)):
                turn = self._turn(self.running[number], 5)
                if turn is None:
                    raise self._too_short()
                seen[number].append(turn.min_ns)
            turns = [turn for one in self.running if (turn := one.turn()) is not None]
            if not any(turn.busy for turn in turns) and all(map(is_warm, seen)):
                return max(float(times[-1]) for times in seen)

    def _slice(self, steps: int, is_first: bool) -> bool:
        """A turn for each, in random order. False when one has ended: then the slice counts for none.

        The first one begins with a garbage collection, so that all count theirs from the same state. The later ones
        do not: collections cost time, that time is under test, and one before every slice would take their work away.
        """
        turns: list[tuple[_Running, Turn]] = []
        for one in self.rng.sample(list(self.running), len(self.running)):
            turn = self._turn(one, steps, collect=is_first)
            if turn is None:
                return False
            turns.append((one, turn))
        for one, turn in turns:
            one.sample.turns.append(turn)
            one.sample.peak_rss_bytes = max(one.sample.peak_rss_bytes, turn.rss_kb * 1024)
        return True

    def _turn(self, one: _Running, steps: int, collect: bool = False) -> Turn | None:
        """Let one launch run; None when it has ended by itself, and well."""
        one.go(steps, collect)
        deadline = time.monotonic() + self.limits.patience_s
        while True:
            one.seen.server.poll(_POLL_S)
            turn = one.turn()
            if turn is not None:
                one.pause()
                return turn
            if one.status() == 0:
                return None
            one.must_run()
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"{one.launch.program.title}: no step for {self.limits.patience_s:g} s",
                    slug="no-step",
                    advice="wait longer with --patience SECONDS",
                )

    def _too_short(self) -> JobFailedError:
        ended = [one.launch.program.title for one in self.running if one.status() is not None]
        return JobFailedError(
            f"{', '.join(ended) or 'the job'}: ended before there were enough steps",
            slug="too-few-steps",
            advice="let the job run for some 500 steps or more: perfdoctor ends it when it has seen enough",
        )

    def _leave(self) -> None:
        """Tell all to go, and wait for it: they write what is left of their recordings."""
        for one in self.running:
            one.resume()
            one.tell(do="stop", step=0)
        deadline = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline and any(one.leaves for one in self.running):
            for one in self.running:
                one.seen.server.poll(_POLL_S / 2)


@contextlib.contextmanager
def one_gate_at_a_time(path: Path) -> Iterator[None]:
    """Two gates on one machine would disturb each other: the second is refused. Raises PerfdoctorError."""
    import fcntl

    # Everybody may write where it lies: a link put there would have us write over what it leads to.
    safely = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | safely, 0o644)
        except PermissionError:  # another user's file: it can be locked all the same
            descriptor = os.open(path, os.O_RDONLY | safely)
    except OSError as error:
        raise PerfdoctorError(
            f"cannot lock {path}: {error.strerror}",
            slug="gate-lock",
            advice="take it away, or have its owner do so: it is to be a plain file",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 64).decode("ascii", "replace").strip() or "unknown"
            raise PerfdoctorError(
                f"another gate runs on this machine (process {owner})",
                slug="gate-running",
                advice=f"wait for it; two would disturb each other (lock file {path})",
                exit_code=Exit.NOT_MEASURABLE,
            ) from None
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
