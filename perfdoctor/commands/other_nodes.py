"""A job of several nodes, each under a perfdoctor of its own: one reports on all of them once the others have ended."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import PerfdoctorError
from ..evidence.model import ranks_in_words
from ..exits import Exit
from ..launch.job import Ending
from ..recording.directory import RunDirectory
from ..recording.reader import read_facts
from ..recording.siblings import QUIET_S, Part, find, is_growing, last_written_s, lead
from .progress import say

_PATIENCE_S = 60.0
"""For other nodes to end: ranks leave within seconds of each other, and a node whose job goes on is read as it is."""
_LOOK_S = 0.25


def handed_over(directory: RunDirectory, ending: Ending) -> Exit | None:
    """The exit code where another node reports: that of the job's own end here, since what is found is told once, and
    whoever starts all nodes takes the worst code of all. None where this node reports: of those that are left, and that
    have recorded into a directory which this one can read, it has the lowest rank."""
    own, *others = find(directory)
    left = [own, *others]
    while (leading := lead(left)) is not None and leading is not own:
        if _will_report(leading, ending):
            return _told(own, leading, ending)
        left.remove(leading)
    return None


def _will_report(leading: Part, ending: Ending) -> bool:
    """Whether somebody is there who does. Where the job failed here, it may have failed for the loss of that node."""
    if not leading.is_over and ending.kind not in ("finished", "stopped", "interrupted"):
        _wait([leading.directory])
    return _has_ended(leading.directory) or is_growing(leading.directory)


def _told(own: Part, leading: Part, ending: Ending) -> Exit:
    numbers, first = ranks_in_words({rank for _, rank in own.ranks}), min(rank for _, rank in leading.ranks)
    where = shlex.quote(str(leading.directory.path))
    say(f"{numbers} recorded; the node with rank {first} reports on the whole job, later: perfdoctor report {where}")
    if ending.kind in ("crashed", "killed"):
        say(f"the job failed here with {ending.how}")
        return Exit.JOB_FAILED
    return Exit.NOT_MEASURABLE if ending.kind == "timeout" else Exit.OK


def wait_for_others(directory: RunDirectory) -> None:
    """Until the other nodes of the job have ended, or record no more; Ctrl-C ends the waiting."""
    with contextlib.suppress(KeyboardInterrupt):
        _wait([part.directory for part in find(directory)[1:]])


def _wait(directories: Sequence[RunDirectory]) -> None:
    began = time.monotonic()
    late = [_Late(directory, last_written_s(directory), began) for directory in directories]
    while (late := [one for one in late if one.is_awaited()]) and time.monotonic() - began < _PATIENCE_S:
        time.sleep(_LOOK_S)


def _has_ended(directory: RunDirectory) -> bool:
    try:
        return read_facts(directory).end != "unknown"
    except PerfdoctorError:
        return False


@dataclass(slots=True)
class _Late:
    """Another node that has not ended."""

    directory: RunDirectory
    written_s: float
    seen: float
    """When that was seen to change, by our clock: those of nodes need not agree."""

    def is_awaited(self) -> bool:
        """Whether it still records, and has not said how the job ended."""
        if _has_ended(self.directory):
            return False
        written_s = last_written_s(self.directory)
        if written_s != self.written_s:
            self.written_s, self.seen = written_s, time.monotonic()
        return time.monotonic() - self.seen < QUIET_S
