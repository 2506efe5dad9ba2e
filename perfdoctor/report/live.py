"""The job while it runs: a panel for a terminal, and one plain line for a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import wording

if TYPE_CHECKING:
    from rich.console import RenderableType

JOB_LINE_LIMIT = 2000
"""Characters of a job's line that are looked at; no terminal is wider."""
BAR_WIDTH = 40
"""Columns."""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """What is known at one moment. None and "" mean unknown, and are left out."""

    phase: str
    """Such as "starting", "warming up", "observing", "stopping"."""
    step: int = 0
    step_ms: float | None = None
    samples_per_s: float | None = None
    batches_per_s: float | None = None
    input_wait_ms: float | None = None
    """Per step."""
    gc_count: int | None = None
    """Collections since the last line."""
    gc_ms: float | None = None
    """Their time together."""
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    gpu: str = ""
    elapsed_s: float = 0.0
    done: float | None = None
    """Share of the goal that is reached."""
    left_s: float | None = None
    """Estimated."""
    job_lines: tuple[str, ...] = ()
    """The end of the job's output, the last line last."""


def plain_line(status: LiveStatus) -> str:
    """One line for a log, in the form of DL4J's PerformanceListener.

    "ETL: 0.2 ms; iteration 120; iteration time: 23.1 ms; samples/sec: 1385.3; batches/sec: 43.3;
    GC: 2 (1.4 ms); CPU: 1.0 cores; memory: 412 MiB"
    """
    parts = [
        "" if status.step else f"{status.phase} ({wording.elapsed(status.elapsed_s)})",
        _told("ETL: {}", status.input_wait_ms, wording.plain_ms),
        f"iteration {status.step}" if status.step else "",
        _told("iteration time: {}", status.step_ms, wording.plain_ms),
        _told("samples/sec: {}", status.samples_per_s, wording.rate),
        _told("batches/sec: {}", status.batches_per_s, wording.rate),
        *(f"{name}: {value}" for name, value in (("GC", _gc(status)), *_resources(status)) if value),
    ]
    return wording.clean("; ".join(filter(None, parts)))


def _told(template: str, value: float | None, worded: Callable[[float], str]) -> str:
    """The template with the value in words; "" where it is not known."""
    return "" if value is None else template.format(worded(value))


def render_live(status: LiveStatus, width: int, height: int) -> RenderableType:
    """A panel with the job's last lines under it, in at most `height` lines of `width` columns."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = _panel_rows(status)
    drawn = len(rows) + 2 + (status.done is not None)
    if height < drawn or width < 20:
        # In a group, because a console re-flows a text that it is given alone.
        return Group(Text(plain_line(status), no_wrap=True, overflow="ellipsis"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    if status.done is not None:
        table.add_row(Text("goal"), goal_bar(status.done, status.left_s))
    title = Text(f"perfdoctor: {status.phase}, {wording.elapsed(status.elapsed_s)}", style="bold")
    panel = Panel(table, title=title, title_align="left", width=width, border_style="cyan")
    shown = tail(status.job_lines, height - drawn)
    return Group(panel, *(Text(line, no_wrap=True, overflow="ellipsis") for line in shown))


def goal_bar(done: float, left_s: float | None) -> RenderableType:
    """How much of the goal is reached, and the time left where that can be said."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(Text(share_done(done, left_s)), ProgressBar(total=1.0, completed=done, width=BAR_WIDTH))
    return table


def share_done(done: float, left_s: float | None) -> str:
    """ "42 %, about 31 s left"."""
    left = "" if left_s is None or done >= 1 else f", about {wording.elapsed(max(1.0, left_s))} left"
    return f"{100 * done:.0f} %{left}"


def life_line(phase: str, elapsed_s: float, done: float | None, left_s: float | None) -> str:
    """For a log in which nothing else shows that something is going on: "warming up, 12 s so far"."""
    parts = [phase, f"{wording.elapsed(elapsed_s)} so far"]
    return wording.clean(", ".join(parts if done is None else [*parts, share_done(done, left_s)]))


class Pace:
    """How long until a goal is reached, from how fast it has come nearer since it was first seen to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, float] | None = None

    def left_s(self, done: float) -> float | None:
        """None while there is nothing to tell it from."""
        now = self._clock()
        if self._first is None:
            self._first = (now, done) if done > 0 else None
            return None
        began, at_first = self._first
        return (now - began) * (1 - done) / (done - at_first) if done > at_first else None


def tail(lines: tuple[str, ...], room: int) -> tuple[str, ...]:
    """The last `room` lines as a terminal would show them: what a carriage return overwrote is gone."""
    return tuple(_shown(line) for line in lines[-room:]) if room > 0 else ()


def _shown(line: str) -> str:
    drawn = [piece for piece in line[-JOB_LINE_LIMIT:].split("\r") if piece.strip()]
    return wording.clean(drawn[-1] if drawn else "").replace("\n", " ").expandtabs(4)


def _panel_rows(status: LiveStatus) -> list[tuple[str, str]]:
    speed = [
        _told("{} per step", status.step_ms, wording.duration),
        _told("{} samples/s", status.samples_per_s, wording.count),
        _told("{} batches/s", status.batches_per_s, wording.count),
    ]
    costs = [
        _told("waiting for data {} per step", status.input_wait_ms, wording.duration),
        f"garbage collections {gc}" if (gc := _gc(status)) else "",
    ]
    rows = [
        ("step", wording.count(status.step) if status.step else "none yet"),
        ("speed", ", ".join(filter(None, speed))),
        ("cost", ", ".join(filter(None, costs))),
        ("use", ", ".join(f"{name} {value}" for name, value in _resources(status) if value)),
    ]
    return [(label, wording.clean(text)) for label, text in rows if text]


def _gc(status: LiveStatus) -> str:
    if status.gc_count is None:
        return ""
    if status.gc_count == 0 or status.gc_ms is None:
        return wording.count(status.gc_count)
    return f"{wording.count(status.gc_count)} ({wording.plain_ms(status.gc_ms)})"


def _resources(status: LiveStatus) -> tuple[tuple[str, str], ...]:
    return (
        ("CPU", _told("{}", status.cpu_cores, wording.cores)),
        ("memory", _told("{}", status.memory_bytes, wording.size)),
        ("GPU", status.gpu),
    )
