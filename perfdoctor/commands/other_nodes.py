"""A job of several nodes, each under a perfdoctor of its own: one reports on all of them once the others have ended."""

from __future__ import annotations

import contextlib
import shlex
import time
from dataclasses import dataclass

from ..errors import PerfdoctorError
from ..evidence.model import ranks_in_words
from ..exits import Exit
from ..launch.job import Ending
from ..recording.directory import RunDirectory
from ..recording.reader import read_facts
from ..recording.siblings import QUIET_S, find, last_written_s, lead
from .progress import say

_PATIENCE_S = 60.0
"""For other nodes to end: ranks leave within seconds of each other, and a node whose job goes on is read as it is."""
_LOOK_S = 0.25


def handed_over(directory: RunDirectory, ending: Ending) -> Exit | None:
    """The exit code where another node reports: that of the job's own end here, since what is found is told once, and
    whoever starts all nodes takes the worst code of all. None where this node reports: it has rank 0, or nobody has
    recorded that, or not in a directory that this node can read."""
    own, *others = find(directory)
    leading = lead([own, *others])
    if leading is None or leading is own:
        return None
    numbers = ranks_in_words({rank for _, rank in own.ranks})
    where = shlex.quote(str(leading.directory.path))
    say(f"{numbers} recorded; the node with rank 0 reports on the whole job, later: perfdoctor report {where}")
    if ending.kind in ("crashed", "killed"):
        say(f"the job failed here with {ending.how}")
        return Exit.JOB_FAILED
    return Exit.NOT_MEASURABLE if ending.kind == "timeout" else Exit.OK


@dataclass(slots=True)
class _Late:
    """Another node that has not ended."""

    directory: RunDirectory
    written_s: float
    seen: float
    """When that was seen to change, by our clock: those of nodes need not agree."""

    def is_awaited(self) -> bool:
        """Whether it still records, and has not said how the job ended."""
        with contextlib.suppress(PerfdoctorError):
            if read_facts(self.directory).end != "unknown":
                return False
        written_s = last_written_s(self.directory)
        if written_s != self.written_s:
            self.written_s, self.seen = written_s, time.monotonic()
        return time.monotonic() - self.seen < QUIET_S


def wait_for_others(directory: RunDirectory) -> None:
    """Until the other nodes of the job have ended, or record no more; Ctrl-C ends the waiting."""
    began = time.monotonic()
    late = [_Late(part.directory, last_written_s(part.directory), began) for part in find(directory)[1:]]
    with contextlib.suppress(KeyboardInterrupt):
        while (late := [one for one in late if one.is_awaited()]) and time.monotonic() - began < _PATIENCE_S:
            time.sleep(_LOOK_S)
