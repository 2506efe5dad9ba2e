"""Modes of the job's own, from what was seen of them and the window that timed them."""

from __future__ import annotations

from statistics import median

from ..recording.base import NOT_TIMED
from ..recording.model import ProcessRecording
from .model import Missing, Modes

_NONE = Missing("no mode of the job's own is around its steps")


def build(process: ProcessRecording) -> Modes | Missing:
    """Of those that were still on when it was last looked for some."""
    seen = process.modes_seen
    if not seen or not seen[-1].on:
        return _NONE
    window = process.modes
    share = seen[-1].on / seen[-1].looked
    if window is None or isinstance(window, Missing):
        return Modes(share, window or NOT_TIMED)
    timed = tuple(sorted(window.modes, key=lambda mode: -median(mode.ms)))
    return Modes(share, timed or Missing("no step with one on came by while they were to be timed"))
