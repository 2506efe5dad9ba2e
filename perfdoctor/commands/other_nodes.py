"""A job of several nodes, each under a perfdoctor of its own: one reports on all of them once the others have ended."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import PerfdoctorError
from ..evidence.model import ranks_in_words
from ..exits import Exit
from ..launch.job import Ending
from ..recording.directory import RunDirectory
from ..recording.identity import HEAD_BYTES
from ..recording.reader import read_facts
from ..recording.siblings import QUIET_S, Part, find, is_growing, last_written_s, lead, unrecorded
from ..storage.copies import fetch_others, forget_others, is_stored, origin
from .progress import say

_PATIENCE_S = 60.0
"""For other nodes to end: ranks leave within seconds of each other, and a node whose job goes on is read as it is."""
_LOOK_S = 0.25
_FETCH_S = 2.0
"""Between two looks into storage: each lists it anew."""
_UPLOAD_S = 30.0
"""For other nodes to upload how the job ended there, which they do at once: while it ran they uploaded only now and
then, so that silence tells nothing before."""


def gather(directory: RunDirectory, ending: Ending) -> None:
    """Of a recording in storage: have beside it what tells who recorded the other ranks of its job, and wait for those
    of which nothing is there yet. Ctrl-C ends the waiting."""
    if not (missing := unrecorded(find(directory))):
        return
    began = seen = time.monotonic()
    with _told_once(directory), contextlib.suppress(KeyboardInterrupt):
        say(f"looking for what {ranks_in_words(missing)} recorded")
        while time.monotonic() - seen < _UPLOAD_S and time.monotonic() - began < _PATIENCE_S:
            if fetch_others(directory.path, HEAD_BYTES):
                seen = time.monotonic()
            if ending.kind == "interrupted" or not unrecorded(find(directory)):
                break
            time.sleep(_FETCH_S)


@contextlib.contextmanager
def _told_once(directory: RunDirectory) -> Iterator[None]:
    """Where storage cannot be read, this node reports on its own ranks."""
    try:
        yield
    except PerfdoctorError as error:
        forget_others(directory.path)
        say(f"what other nodes recorded cannot be fetched: {error.message}")


def handed_over(directory: RunDirectory, ending: Ending) -> Exit | None:
    """The exit code where another node reports: that of the job's own end here, since what is found is told once, and
    whoever starts all nodes takes the worst code of all. None where this node reports: of those that are left, and that
    have recorded into a directory which this one can read, it has the lowest rank."""
    own, *others = find(directory)
    left = [own, *others]
    while (leading := lead(left)) is not None and leading is not own:
        if _will_report(own, leading, ending):
            return _told(own, leading, ending)
        left.remove(leading)
    return None


def _will_report(own: Part, leading: Part, ending: Ending) -> bool:
    """Whether somebody is there who does. Where the job failed here, it may have failed for the loss of that node."""
    well = ("finished", "stopped") if not is_stored(own.directory.path) else ()
    if not leading.is_over and ending.kind not in (*well, "interrupted"):
        _wait(own.directory, [leading.directory])
    return _has_ended(leading.directory) or is_growing(leading.directory)


def _told(own: Part, leading: Part, ending: Ending) -> Exit:
    numbers, first = ranks_in_words(own.last_ranks), min(leading.last_ranks)
    where = shlex.quote(origin(leading.directory.path))
    say(f"{numbers} recorded; the node with rank {first} reports on the whole job, later: perfdoctor report {where}")
    if ending.kind in ("crashed", "killed"):
        say(f"the job failed here with {ending.how}")
        return Exit.JOB_FAILED
    return Exit.NOT_MEASURABLE if ending.kind == "timeout" else Exit.OK


def wait_for_others(directory: RunDirectory) -> None:
    """Until the other nodes of the job have ended, or record no more; Ctrl-C ends the waiting."""
    with contextlib.suppress(KeyboardInterrupt):
        _wait(directory, [part.directory for part in find(directory)[1:]])


def complete(directory: RunDirectory) -> None:
    """Of a recording in storage: have all beside it that other nodes of its job have uploaded."""
    if len(find(directory)) > 1 and is_stored(directory.path):
        with _told_once(directory):
            fetch_others(directory.path)


def _wait(own: RunDirectory, others: Sequence[RunDirectory]) -> None:
    began, is_fetched = time.monotonic(), is_stored(own.path)
    quiet_s = _UPLOAD_S if is_fetched else QUIET_S
    late = [_Late(other, quiet_s, last_written_s(other), began) for other in others]
    while (late := [one for one in late if one.is_awaited()]) and time.monotonic() - began < _PATIENCE_S:
        time.sleep(_FETCH_S if is_fetched else _LOOK_S)
        if is_fetched:
            with contextlib.suppress(PerfdoctorError):  # it may answer the next time
                fetch_others(own.path, HEAD_BYTES)


def _has_ended(directory: RunDirectory) -> bool:
    try:
        return read_facts(directory).end != "unknown"
    except PerfdoctorError:
        return False


@dataclass(slots=True)
class _Late:
    """Another node that has not ended."""

    directory: RunDirectory
    quiet_s: float
    """Without a new word for so long, it is not waited for any more."""
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
        return time.monotonic() - self.seen < self.quiet_s
