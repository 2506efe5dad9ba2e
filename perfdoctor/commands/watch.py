"""What the user sees while the job runs: a live view on a terminal, plain lines with `--log-every`, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..launch.command import OutputMode
from ..monitor.sources import HostReading
from ..observation.watch import INTERRUPTED, Progress, output_tail
from ..recording.directory import RunDirectory
from ..report.live import LiveStatus, plain_line, render_live
from ..report.trials import trial_sentence

Show = Callable[[Progress], None]


@contextmanager
def watcher(directory: RunDirectory, mode: OutputMode, log_every: int | None) -> Iterator[Show]:
    """A function to call with progress, several times a second."""
    if log_every is not None:
        yield _Lines(log_every)
    elif mode == "live":
        with _live(directory) as show:
            yield show
    else:
        yield _note_interrupt


def _note_interrupt(progress: Progress) -> None:
    if progress.trial is not None:
        print(f"perfdoctor: {trial_sentence(progress.trial)}", file=sys.stderr, flush=True)
    if progress.phase == INTERRUPTED:
        print(f"perfdoctor: {INTERRUPTED}", file=sys.stderr, flush=True)


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
            status = _status(
                progress,
                step=self.printed,
                step_ms=float(rows["wall_us"][chosen].mean()) / 1000,
                wait_ms=float(rows["input_wait_us"][chosen].mean()) / 1000,
                samples=samples,
                # Steps with a collection: few have more than one.
                gc=(int((gc_us > 0).sum()), float(gc_us.sum()) / 1000),
                lines=(),
            )
            print(plain_line(status), file=sys.stderr, flush=True)


@contextmanager
def _live(directory: RunDirectory) -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    last: list[LiveStatus] = []

    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(progress: Progress) -> None:
            lines = tuple(output_tail(directory.job_output, console.height))
            if progress.trial is not None:
                console.print(f"perfdoctor: {trial_sentence(progress.trial)}", markup=False, highlight=False)
            if progress.steps:
                status = _status(
                    progress,
                    step=progress.step,
                    step_ms=progress.wall_us / progress.steps / 1000,
                    wait_ms=progress.wait_us / progress.steps / 1000,
                    samples=progress.samples / progress.steps,
                    gc=(progress.gc_count, progress.gc_us / 1000),
                    lines=lines,
                )
                last[:] = [status]
            elif last:
                # No step since the last time: its numbers stay.
                now = _status(progress, step=progress.step, lines=lines)
                status = replace(
                    last[0],
                    phase=now.phase,
                    cpu_cores=now.cpu_cores,
                    memory_bytes=now.memory_bytes,
                    gpu=now.gpu,
                    elapsed_s=now.elapsed_s,
                    job_lines=lines,
                )
            else:
                status = _status(progress, step=progress.step, lines=lines)
            live.update(render_live(status, console.width, console.height), refresh=True)

        yield show


def _status(
    progress: Progress,
    *,
    step: int,
    lines: tuple[str, ...],
    step_ms: float | None = None,
    wait_ms: float | None = None,
    samples: float | None = None,
    gc: tuple[int, float] | None = None,
) -> LiveStatus:
    rate = 1000 / step_ms if step_ms else None
    cpu, memory, gpu = _host(progress.host)
    return LiveStatus(
        phase=progress.phase,
        step=step,
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
