"""What a window saw, or why nothing can be said of it."""

from __future__ import annotations

from typing import TypeVar

from ..recording.lines import IndexUse, LinesWindow, SitesWindow
from ..recording.model import ProcessRecording
from ..recording.operators import NO_COUNTERS, Counters, OpsWindow
from .model import Missing

T = TypeVar("T")
_REMEDY = "let the job run for {} steps or more"


def operators(process: ProcessRecording) -> OpsWindow | Missing:
    """The operator window."""
    return _seen(process.ops, "operator", 20)


def call_sites(process: ProcessRecording) -> SitesWindow | Missing:
    """The call-site window."""
    return _seen(process.call_sites, "call-site", 20)


def lines(process: ProcessRecording) -> LinesWindow | Missing:
    """The line window."""
    return _seen(process.code_lines, "line", 30)


def counters(process: ProcessRecording) -> Counters | Missing:
    """The counters window, which opens only for a gate."""
    return NO_COUNTERS if process.counters is None else _seen(process.counters, "counters", 0)


def index_use(process: ProcessRecording) -> tuple[IndexUse, ...] | Missing:
    """Empty where no loss took class numbers as targets and no table was looked up."""
    window = call_sites(process)
    return window if isinstance(window, Missing) else window.indices


def _seen(window: T | Missing | None, name: str, steps: int) -> T | Missing:
    if window is None:
        return Missing(f"the {name} window was not reached", _REMEDY.format(steps))
    if isinstance(window, Missing):
        return Missing(f"the {name} window could not open: {window.reason}")
    return window
