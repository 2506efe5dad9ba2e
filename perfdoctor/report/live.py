"""The job while it runs: a panel for a terminal, and one plain line for a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import wording

if TYPE_CHECKING:
    from rich.console import RenderableType

JOB_LINE_LIMIT = 2000
"""Characters of a job's line that are looked at; no terminal is wider."""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """What is known at one moment. None and "" mean unknown, and are left out."""

    phase: str
    """Such as "starting", "warming up", "observing", "stopping"."""
    step: int = 0
    steps_wanted: int | None = None
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
    job_lines: tuple[str, ...] = ()
    """The end of the job's output, the last line last."""


def plain_line(status: LiveStatus) -> str:
    """One line for a log, in the form of DL4J's PerformanceListener.

    "ETL: 0.2 ms; iteration 120; iteration time: 23.1 ms; samples/sec: 1385.3; batches/sec: 43.3;
    GC: 2 (1.4 ms); CPU: 1.0 cores; memory: 412 MiB"
    """
    parts: list[str] = []
    if status.step == 0:
        parts.append(f"{status.phase} ({wording.elapsed(status.elapsed_s)})")
    if status.input_wait_ms is not None:
        parts.append(f"ETL: {wording.plain_ms(status.input_wait_ms)}")
    if status.step > 0:
        parts.append(f"iteration {status.step}")
    if status.step_ms is not None:
        parts.append(f"iteration time: {wording.plain_ms(status.step_ms)}")
    if status.samples_per_s is not None:
        parts.append(f"samples/sec: {wording.rate(status.samples_per_s)}")
    if status.batches_per_s is not None:
        parts.append(f"batches/sec: {wording.rate(status.batches_per_s)}")
    parts += [f"{name}: {value}" for name, value in (("GC", _gc(status)), *_resources(status)) if value]
    return wording.clean("; ".join(parts))


def render_live(status: LiveStatus, width: int, height: int) -> RenderableType:
    """A panel with the job's last lines under it, in at most `height` lines of `width` columns."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = _panel_rows(status)
    if height < len(rows) + 2 or width < 20:
        # In a group, because a console re-flows a text that it is given alone.
        return Group(Text(plain_line(status), no_wrap=True, overflow="ellipsis"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    title = Text(f"perfdoctor: {status.phase}, {wording.elapsed(status.elapsed_s)}", style="bold")
    panel = Panel(table, title=title, title_align="left", width=width, border_style="cyan")
    room = height - len(rows) - 2
    shown = tail(status.job_lines, room)
    return Group(panel, *(Text(line, no_wrap=True, overflow="ellipsis") for line in shown))


def tail(lines: tuple[str, ...], room: int) -> tuple[str, ...]:
    """The last `room` lines as a terminal would show them: what a carriage return overwrote is gone."""
    return tuple(_shown(line) for line in lines[-room:]) if room > 0 else ()


def _shown(line: str) -> str:
    drawn = [piece for piece in line[-JOB_LINE_LIMIT:].split("\r") if piece.strip()]
    return wording.clean(drawn[-1] if drawn else "").replace("\n", " ").expandtabs(4)


def _panel_rows(status: LiveStatus) -> list[tuple[str, str]]:
    wanted = f" of {wording.count(status.steps_wanted)}" if status.steps_wanted is not None else ""
    speed = []
    if status.step_ms is not None:
        speed.append(f"{wording.duration(status.step_ms)} per step")
    if status.samples_per_s is not None:
        speed.append(f"{wording.count(status.samples_per_s)} samples/s")
    if status.batches_per_s is not None:
        speed.append(f"{wording.count(status.batches_per_s)} batches/s")
    costs = []
    if status.input_wait_ms is not None:
        costs.append(f"waiting for data {wording.duration(status.input_wait_ms)} per step")
    if gc := _gc(status):
        costs.append(f"garbage collections {gc}")
    rows = [
        ("step", f"{wording.count(status.step)}{wanted}" if status.step else "none yet"),
        ("speed", ", ".join(speed)),
        ("cost", ", ".join(costs)),
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
        ("CPU", "" if status.cpu_cores is None else wording.cores(status.cpu_cores)),
        ("memory", "" if status.memory_bytes is None else wording.size(status.memory_bytes)),
        ("GPU", status.gpu),
    )
