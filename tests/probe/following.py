"""Steps under the window that follows functions which return the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from users_file import IdleLoop, UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows.same_results import SameResultsWindow

MS = 1_000_000
NOW = [0]
"""Nanoseconds, of the `standing_clock`."""


def spend(ms: float = 1.0) -> None:
    """Called by all that shall take time; takes none of its own, and returns nothing."""
    NOW[0] += round(ms * MS)


def followed(step: Callable[[], object], file: str, steps: int, part: int = timeline.OTHER) -> list[dict[str, Any]]:
    """Rows of a window over so many steps, where the user's code is in `file`."""
    loop = IdleLoop()
    window = SameResultsWindow(UsersFile(file), loop, compiled=False)
    assert window.obstacle() == ""
    window.open()
    try:
        for _ in range(steps):
            loop.timeline.enter(part)
            step()
            loop.timeline.leave(part)
            loop.timeline.boundary()
        assert window.closable() and not window.is_gone()
    finally:
        record = window.close(steps)
    assert sys.getprofile() is None
    rows: list[dict[str, Any]] = record["rows"]
    return rows
