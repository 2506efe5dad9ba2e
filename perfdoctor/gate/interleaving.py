"""Two or three copies of a job take turns, slice by slice, so that what disturbs one disturbs all.

Every copy stands at a step boundary while another runs. Its other processes (data-loader workers) are stopped
meanwhile: batches made while nobody looks would hide the wait for data. They always go on again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit
from ..launch.command import Command
from ..launch.control import ControlServer, Rank, Turn
from ..launch.job import Job, start
from ..launch.tree import JobProcesses
from ..monitor.sampler import HostSampler
from ..recording.directory import RunDirectory
from .failure import JobFailedError
from .plan import SLICES, is_warm, slice_steps, slices_for
from .samples import Lap

_POLL_S = 0.05
_LEAVE_S = 30.0
"""For a copy to leave after its last turn: it may time its operators."""
LEAST_SLICES = 10
"""Of a job that ends by itself: fewer say nothing."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One copy to run."""

    name: str
    title: str
    """For messages."""
    command: Command
    cwd: Path
    directory: RunDirectory
    environment: Mapping[str, str]
    windows: tuple[str, ...] = ()
    """To be opened while it warms up."""


class _Copy:
    """A contestant that runs."""

    def __init__(self, contestant: Contestant, usable_cpus: float) -> None:
        self.contestant = contestant
        self.lap = Lap()
        self.stopped: list[int] = []
        self.server = ControlServer(contestant.directory.path)
        self.sampler: HostSampler | None = None
        if self.server.problem:
            raise _failure("no-control-channel", f"the job cannot take turns: {self.server.problem}", "use --runs DIR")
        self.job: Job = start(
            contestant.command,
            contestant.directory,
            windows=contestant.windows,
            usable_cpus=usable_cpus,
            output="file",
            environment=contestant.environment,
            cwd=contestant.cwd,
            apart=True,
        )

    def rank(self) -> Rank | None:
        """The one that takes turns. Raises PerfdoctorError for a job of several."""
        ranks = self.server.ranks
        if len(ranks) > 1:
            raise _failure(
                "several-ranks", f"{self.contestant.title}: a job of several ranks cannot take turns", "--schedule abba"
            )
        return ranks[0] if ranks else None

    def status(self) -> int | None:
        """The exit status once it has ended. Not `Job.poll`, which would reap the other copies too."""
        return self.job.process.poll()

    def go(self, steps: int, collect: bool) -> None:
        """Its turn; with `collect`, after a full garbage collection."""
        rank = self.rank()
        if rank is not None:
            self.resume()
            rank.turn = None
            self.server.send(rank, {"do": "go", "steps": steps, "collect": collect})

    def pause(self) -> None:
        """Stop everything but the training process itself, which waits."""
        for pid in _descendants(self.job.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                self.stopped.append(pid)

    def resume(self) -> None:
        """Let them go on."""
        for pid in self.stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()


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


def _failure(
    slug: str, message: str, advice: str, code: Exit = Exit.NOT_MEASURABLE, output: Path | None = None
) -> JobFailedError:
    return JobFailedError(message, slug=slug, advice=advice, exit_code=code, output=str(output or ""))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a launch may take."""

    patience_s: float
    """Without any step."""
    usable_cpus: float
    slices: int = SLICES


def race(
    contestants: Sequence[Contestant], limits: Limits, rng: random.Random, tick: Callable[[], None] = lambda: None
) -> dict[str, Lap]:
    """One fresh launch of every contestant, in turns; what each did, by name. All have ended on return.

    `tick` is called while waiting, to keep a display alive. Raises JobFailedError, and KeyboardInterrupt for Ctrl-C.
    """
    tree = JobProcesses()
    copies: list[_Copy] = []
    try:
        for contestant in rng.sample(list(contestants), len(contestants)):
            copies.append(_Copy(contestant, limits.usable_cpus))
        for copy in copies:
            if copy.contestant.windows:
                copy.sampler = HostSampler(copy.job.pid, copy.contestant.directory.host_file)
                copy.sampler.start()
        _wait_for_all(copies, limits, tick)
        typical_ns = _warm_up(copies, limits, rng, tick)
        steps = slice_steps(typical_ns)
        for number in range(min(limits.slices, slices_for(typical_ns, steps))):
            if not _one_slice(copies, steps, limits, rng, tick, is_first=number == 0):
                if number < LEAST_SLICES:
                    raise _too_short(copies)
                break
        _leave(copies, tick)
    finally:
        for copy in copies:
            copy.resume()
        for copy in copies:
            if copy.sampler is not None:
                copy.sampler.stop()
            copy.server.close()
        _end(copies, tree)
    return {copy.contestant.name: copy.lap for copy in copies}


def _wait_for_all(copies: Sequence[_Copy], limits: Limits, tick: Callable[[], None]) -> None:
    """Until every copy stands at its first step boundary."""
    deadline = time.monotonic() + limits.patience_s
    asked: set[int] = set()
    while any((rank := copy.rank()) is None or rank.turn is None for copy in copies):
        for copy in copies:
            copy.server.poll(_POLL_S / len(copies))
            _must_run(copy)
            rank = copy.rank()
            if rank is not None and id(copy) not in asked:
                asked.add(id(copy))
                copy.server.send(rank, {"do": "turns"})
            if rank is not None and rank.turn is not None and not copy.stopped:
                copy.pause()
        tick()
        if time.monotonic() > deadline:
            late = [copy.contestant.title for copy in copies if (r := copy.rank()) is None or r.turn is None]
            raise _failure(
                "no-step",
                f"no step within {limits.patience_s:g} s: {', '.join(late)}",
                "a step ends at optimizer.step(), a batch or a forward; wait longer with --patience SECONDS",
            )
    for copy in copies:
        rank = copy.rank()
        copy.lap.sources = tuple(rank.sources) if rank else ()


def _warm_up(copies: Sequence[_Copy], limits: Limits, rng: random.Random, tick: Callable[[], None]) -> float:
    """Until steps are steady and no window is open; the length of a step, nanoseconds."""
    seen: dict[int, list[int]] = {id(copy): [] for copy in copies}
    while True:
        for copy in rng.sample(list(copies), len(copies)):
            turn = _turn(copy, 5, limits, tick)
            if turn is None:
                raise _too_short(copies)
            seen[id(copy)].append(turn.min_ns)
        turns = [rank.turn for copy in copies if (rank := copy.rank()) is not None and rank.turn is not None]
        if not any(turn.busy for turn in turns) and all(is_warm(times) for times in seen.values()):
            return max(float(times[-1]) for times in seen.values())


def _one_slice(
    copies: Sequence[_Copy], steps: int, limits: Limits, rng: random.Random, tick: Callable[[], None], is_first: bool
) -> bool:
    """A turn for each, in random order. False when one has ended: then the slice counts for none.

    The first one begins with a garbage collection, so that all count theirs from the same state. The later ones do
    not: collections cost time, that time is under test, and one before every slice would take their work away.
    """
    turns: list[tuple[_Copy, Turn]] = []
    for copy in rng.sample(list(copies), len(copies)):
        turn = _turn(copy, steps, limits, tick, collect=is_first)
        if turn is None:
            return False
        turns.append((copy, turn))
    for copy, turn in turns:
        copy.lap.turns.append(turn)
        copy.lap.peak_rss_bytes = max(copy.lap.peak_rss_bytes, turn.rss_kb * 1024)
    return True


def _turn(copy: _Copy, steps: int, limits: Limits, tick: Callable[[], None], collect: bool = False) -> Turn | None:
    """Let one copy run; None when it has ended by itself, and well."""
    copy.go(steps, collect)
    deadline = time.monotonic() + limits.patience_s
    while True:
        copy.server.poll(_POLL_S)
        rank = copy.rank()
        if rank is not None and rank.turn is not None:
            copy.pause()
            return rank.turn
        if copy.status() == 0:
            return None
        _must_run(copy)
        tick()
        if time.monotonic() > deadline:
            raise _failure(
                "no-step",
                f"{copy.contestant.title}: no step for {limits.patience_s:g} s",
                "wait longer with --patience SECONDS",
            )


def _must_run(copy: _Copy) -> None:
    """Raises JobFailedError when a copy has ended badly."""
    status = copy.status()
    if status is None or (status == 0 and copy.rank() is not None):
        return
    name, output = copy.contestant.title, copy.contestant.directory.job_output
    if status == 0:
        raise _failure(
            "no-step",
            f"{name}: the job ended without a step",
            "a step ends at optimizer.step(), a batch or a forward; perfdoctor check SCRIPT shows what is seen",
            output=output,
        )
    how = f"exit code {status}" if status > 0 else f"signal {-status}"
    raise _failure("job-failed", f"{name}: the job failed with {how}", f"see {output}", Exit.JOB_FAILED, output)


def _too_short(copies: Sequence[_Copy]) -> JobFailedError:
    ended = [copy.contestant.title for copy in copies if copy.status() is not None]
    return _failure(
        "too-few-steps",
        f"{', '.join(ended) or 'the job'}: ended before there were enough steps",
        "let the job run for some 500 steps or more: perfdoctor ends it when it has seen enough",
    )


def _leave(copies: Sequence[_Copy], tick: Callable[[], None]) -> None:
    """Tell all to go, and wait for it: they write what is left of their recordings."""
    for copy in copies:
        copy.resume()
        rank = copy.rank()
        if rank is not None:
            copy.server.send(rank, {"do": "stop", "step": 0})
    deadline = time.monotonic() + _LEAVE_S
    while time.monotonic() < deadline and any(copy.status() is None for copy in copies):
        for copy in copies:
            copy.server.poll(_POLL_S / 2)
        tick()


def _end(copies: Sequence[_Copy], tree: JobProcesses) -> None:
    """Whatever still runs, ends: the copies first, each with its own owner, then what they left behind."""
    for grace_s, number in ((3.0, signal.SIGTERM), (5.0, signal.SIGKILL)):
        for copy in copies:
            if copy.status() is None:
                with contextlib.suppress(OSError):
                    os.killpg(copy.job.pid, number)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and any(copy.status() is None for copy in copies):
            time.sleep(0.02)
    if tree.living():
        tree.end(copies[0].job.pid if copies else 0, grace_s=1.0)


@contextlib.contextmanager
def one_gate_at_a_time(path: Path) -> Iterator[None]:
    """Two gates on one machine would disturb each other: the second is refused. Raises PerfdoctorError."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:  # another user's file: it can be locked all the same
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
