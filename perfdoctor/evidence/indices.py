"""What targets and lookups pointed at, from the call-site window."""

from __future__ import annotations

from typing import Literal, cast

from ..recording.model import ProcessRecording
from .model import IndexUse, Missing


def index_use(process: ProcessRecording) -> tuple[IndexUse, ...] | Missing:
    """Empty where no loss took class numbers as targets and no table was looked up."""
    window = process.call_sites
    if window is None:
        return Missing("the call-site window was not reached", "let the job run for 20 steps or more")
    if window.missing:
        return Missing(f"the call-site window could not open: {window.missing}")
    if window.indices is None:
        return Missing("this recording does not say which classes were used", "record the job again")
    return tuple(
        IndexUse(cast(Literal["target", "lookup"], row.kind), row.size, row.width, row.count, row.distinct, row.highest)
        for row in window.indices
    )
