"""What the user sees while the job runs: a live view on a terminal, plain lines with `--log-every`, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..launch.job import OutputMode
from ..monitor.sources import HostReading
from ..observe import Progress, output_tail
from ..recording.directory import RunDirectory
from ..report.live import LiveStatus, plain_line, render_live

Show = Callable[[Progress], None]
_KEEP_S = 2.0
"""How long the live view shows a rate before newer steps must replace it."""


@contextmanager
def watcher(directory: RunDirectory, mode: OutputMode, steps_wanted: int, log_every: int | None) -> Iterator[Show]:
    """A function to call with progress, several times a second."""
    if log_every is not None:
        yield _Lines(log_every, steps_wanted)
    elif mode == "live":
        with _live(directory, steps_wanted) as show:
            yield show
    else:
        yield lambda progress: None


class _Lines:
    """The guide's PerformanceListener: one line on stderr for every N steps, from the steps on disk."""

    def __init__(self, every: int, steps_wanted: int) -> None:
        self.every = every
        self.steps_wanted = steps_wanted
        self.printed = 0

    def __call__(self, progress: Progress) -> None:
        if progress.rows is None:
            return
        rows = progress.rows.steps()
        samples = progress.rows.samples_per_step()
        while len(rows) - self.printed >= self.every:
            chosen = slice(self.printed, self.printed + self.every)
            self.printed += self.every
            wall_ms = float(rows["wall_us"][chosen].mean()) / 1000
            gc_ms = float(rows["gc_us"][chosen].sum()) / 1000
            status = _status(
                progress,
                self.steps_wanted,
                step=int(rows["step"][self.printed - 1]) + 1,
                step_ms=wall_ms,
                wait_ms=float(rows["input_wait_us"][chosen].mean()) / 1000,
                samples=samples,
                gc=(int((rows["gc_us"][chosen] > 0).sum()), gc_ms) if gc_ms else None,
                lines=(),
            )
            print(plain_line(status), file=sys.stderr, flush=True)


@contextmanager
def _live(directory: RunDirectory, steps_wanted: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    last: list[LiveStatus] = []

    with Live(console=console, refresh_per_second=8, transient=True) as live:

        def show(progress: Progress) -> None:
            lines = tuple(output_tail(directory.job_output, console.height))
            if progress.steps:
                step_ms = progress.wall_us / progress.steps / 1000
                status = _status(
                    progress,
                    steps_wanted,
                    step=progress.step,
                    step_ms=step_ms,
                    wait_ms=progress.wait_us / progress.steps / 1000,
                    samples=progress.samples / progress.steps,
                    gc=(progress.gc_count, progress.gc_us / 1000),
                    lines=lines,
                )
                last[:] = [status]
            else:
                before = last[0] if last else None
                status = _status(
                    progress,
                    steps_wanted,
                    step=progress.step,
                    step_ms=before.step_ms if before else None,
                    wait_ms=before.input_wait_ms if before else None,
                    samples=None,
                    gc=None,
                    lines=lines,
                )
            live.update(render_live(status, console.width, console.height))

        yield show


def _status(
    progress: Progress,
    steps_wanted: int,
    *,
    step: int,
    step_ms: float | None,
    wait_ms: float | None,
    samples: float | None,
    gc: tuple[int, float] | None,
    lines: tuple[str, ...],
) -> LiveStatus:
    rate = 1000 / step_ms if step_ms else None
    cpu, memory, gpu = _host(progress.host)
    return LiveStatus(
        phase=progress.phase,
        step=step,
        steps_wanted=steps_wanted,
        step_ms=step_ms,
        samples_per_s=samples * rate if samples and rate else None,
        batches_per_s=rate,
        input_wait_ms=wait_ms,
        gc_count=gc[0] if gc else None,
        gc_ms=gc[1] if gc else None,
        cpu_cores=cpu,
        memory_bytes=memory,
        gpu=gpu,
        elapsed_s=progress.elapsed_s,
        job_lines=lines,
    )


def _host(reading: HostReading | None) -> tuple[float | None, int | None, str]:
    if reading is None:
        return None, None, ""
    job = reading.job
    busy = [gpu.utilisation for gpu in reading.gpus or () if gpu.utilisation is not None]
    gpu = f"{100 * max(busy):.0f} %" if busy else ""
    return (job.user_cpus + job.system_cpus, job.rss_bytes, gpu) if job else (None, None, gpu)
