"""What prints and logs in the steady steps, line by line."""

from __future__ import annotations

from ..recording.base import Site
from ..recording.model import ProcessRecording
from .model import LoggingLine
from .steady import Selection

PREFIX = "log:"
"""Of the kinds of calls that are logging."""


def build(process: ProcessRecording, selection: Selection) -> tuple[LoggingLine, ...]:
    """The dearest first. Calls are counted over all steps after the warm-up and their time is scaled to what the steady
    ones spent in logging: a line that prints once an epoch is in none of those."""
    found: dict[tuple[str, Site | None], list[int]] = {}
    for call in process.calls:
        if call.kind.startswith(PREFIX) and call.step > selection.first:
            total = found.setdefault((call.kind.removeprefix(PREFIX), call.site), [0, 0])
            total[0] += call.count
            total[1] += call.us
    all_us = sum(us for _, us in found.values())
    steady_us = int(selection.column("logging_us").sum())
    scale = min(1.0, steady_us / all_us) if all_us else 0.0
    lines = [
        LoggingLine(name, site, count / max(1, selection.span), us * scale / 1000 / selection.count)
        for (name, site), (count, us) in found.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.ms_per_step))
