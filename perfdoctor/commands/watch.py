"""What the user sees while the job runs: a live view on a terminal, else a line from time to time on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..launch.command import OutputMode
from ..observation.watch import INTERRUPTED, Progress, output_tail
from ..recording.directory import RunDirectory
from ..report.live import LiveStatus, Pace, goal_bar, life_line, plain_line, render_live
from ..report.trials import trial_sentence
from .progress import say

if TYPE_CHECKING:
    from rich.console import RenderableType

Show = Callable[[Progress], None]

LIFE_S = 10.0
"""Between two lines where nobody sees a bar: often enough for the log of a CI job, and seldom enough to read it."""


@contextmanager
def watcher(
    directory: RunDirectory, mode: OutputMode, log_every: int | None, trial_seconds: float | None = None
) -> Iterator[Show]:
    """A function to call with progress, several times a second. `trial_seconds` is what all trials may take."""
    if log_every is not None:
        yield _Lines(log_every)
        return
    goal = _Goal(trial_seconds)
    if mode == "live":
        with _live(directory, goal) as show:
            yield show
    else:
        life = _Life(goal)
        with _every(LIFE_S, life.line):
            yield life


@contextmanager
def gate_watcher(budget_s: float) -> Iterator[Callable[[int, int], None]]:
    """A function to tell how many pairs of launches are done, and of how many."""
    pairs = _Pairs(budget_s)
    if not sys.stderr.isatty():
        with _every(LIFE_S, pairs.line):
            yield pairs
        return
    from rich.console import Console
    from rich.live import Live

    # What is printed meanwhile goes above the bar.
    with Live(console=Console(stderr=True), get_renderable=pairs.bar, refresh_per_second=4, transient=True):
        yield pairs


class _Goal:
    """How far the observation is, then how much of the time for trials is used."""

    def __init__(self, trial_seconds: float | None) -> None:
        self.trial_seconds = trial_seconds
        self.pace = Pace()
        self.trials_began: float | None = None

    def reached(self, progress: Progress) -> tuple[float | None, float | None]:
        """The share, and the seconds left; None where they are not known."""
        if progress.in_trials and self.trial_seconds:
            self.trials_began = self.trials_began or time.monotonic()
            spent = min(time.monotonic() - self.trials_began, self.trial_seconds)
            return spent / self.trial_seconds, self.trial_seconds - spent
        return progress.done, None if progress.done is None else self.pace.left_s(progress.done)


class _Life:
    """The last that was told, as a line."""

    def __init__(self, goal: _Goal) -> None:
        self.goal = goal
        self.began = time.monotonic()
        self.phase = "starting"
        self.reached: tuple[float | None, float | None] = (None, None)

    def __call__(self, progress: Progress) -> None:
        _note_interrupt(progress)
        self.phase, self.reached = progress.phase, self.goal.reached(progress)

    def line(self) -> str:
        return life_line(self.phase, time.monotonic() - self.began, *self.reached)


class _Pairs:
    """The pairs of a gate, and the time that the next ones will take."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self.began = time.monotonic()
        self.done = self.wanted = 0
        self.took_s = 0.0
        """All pairs that are done."""

    def __call__(self, done: int, wanted: int) -> None:
        self.done, self.wanted, self.took_s = done, wanted, self.spent_s

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began

    def reached(self) -> tuple[float, float | None]:
        """The share of the pairs, and the seconds left, which no pair can tell before the first has ended."""
        if not self.done:
            return 0.0, None
        end_s = min(self.budget_s, self.took_s / self.done * self.wanted)
        return self.done / self.wanted, max(0.0, end_s - self.spent_s)

    def phase(self) -> str:
        return f"comparing, {self.done} of {self.wanted} pairs" if self.done else "comparing"

    def line(self) -> str:
        return life_line(self.phase(), self.spent_s, *self.reached())

    def bar(self) -> RenderableType:
        from rich.table import Table

        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(f"perfdoctor: {self.phase()}", goal_bar(*self.reached()))
        return row


@contextmanager
def _every(seconds: float, line: Callable[[], str]) -> Iterator[None]:
    """A line on stderr whenever so many seconds have passed."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(seconds):
            say(line())

    writer = threading.Thread(target=write, name="perfdoctor-life", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _note_interrupt(progress: Progress) -> None:
    if progress.trial is not None:
        say(trial_sentence(progress.trial))
    if progress.phase == INTERRUPTED:
        say(INTERRUPTED)


class _Lines:
    """The guide's PerformanceListener: one line on stderr for every N steps, from the steps on disk."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.printed = 0

    def __call__(self, progress: Progress) -> None:
        _note_interrupt(progress)
        file = progress.rows
        if file is None or file.step_count - self.printed < self.every:
            return
        rows = file.steps(since=self.printed)
        start = self.printed - int(rows["step"][0])
        samples = file.samples_per_step()
        while len(rows) - start >= self.every:
            chosen = slice(start, start + self.every)
            start += self.every
            self.printed += self.every
            gc_us = rows["gc_us"][chosen]
            pace = _pace(
                self.printed,
                step_ms=float(rows["wall_us"][chosen].mean()) / 1000,
                wait_ms=float(rows["input_wait_us"][chosen].mean()) / 1000,
                samples=samples,
                # Steps with a collection: few have more than one.
                gc=int((gc_us > 0).sum()),
                gc_ms=float(gc_us.sum()) / 1000,
            )
            print(plain_line(_status(progress, **pace)), file=sys.stderr, flush=True)


@contextmanager
def _live(directory: RunDirectory, goal: _Goal) -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    last: dict[str, Any] = {}

    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(progress: Progress) -> None:
            nonlocal last
            lines = tuple(output_tail(directory.job_output, console.height))
            if progress.trial is not None:
                console.print(f"perfdoctor: {trial_sentence(progress.trial)}", markup=False, highlight=False)
            beat = progress.beat
            if beat.steps:
                each_ms, wait_ms = beat.wall_us / beat.steps / 1000, beat.wait_us / beat.steps / 1000
                last = _pace(progress.step, each_ms, wait_ms, beat.samples / beat.steps, beat.gc, beat.gc_us / 1000)
            # Without a step since the last time its numbers stay.
            done, left_s = goal.reached(progress)
            known = last or {"step": progress.step}
            status = _status(progress, job_lines=lines, done=done, left_s=left_s, **known)
            live.update(render_live(status, console.width, console.height), refresh=True)

        yield show


def _status(progress: Progress, **known: Any) -> LiveStatus:
    """What is seen from outside, and what else is `known`."""
    job = progress.host.job if progress.host else None
    gpus = (progress.host.gpus if progress.host else None) or ()
    busy = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    return LiveStatus(
        phase=progress.phase,
        cpu_cores=job.cpus if job else None,
        memory_bytes=job.rss_bytes if job else None,
        gpu=f"{100 * max(busy):.0f} %" if busy else "",
        elapsed_s=progress.elapsed_s,
        **known,
    )


def _pace(step: int, step_ms: float, wait_ms: float, samples: float | None, gc: int, gc_ms: float) -> dict[str, Any]:
    """What is known of the steps up to `step`: means, and the collections in them."""
    rate = 1000 / step_ms if step_ms else None
    return {
        "step": step,
        "step_ms": step_ms,
        "samples_per_s": samples * rate if samples and rate else None,
        "batches_per_s": rate,
        "input_wait_ms": wait_ms,
        "gc_count": gc,
        "gc_ms": gc_ms,
    }
