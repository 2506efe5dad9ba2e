"""The user's lines in terms of an ordinary step.

Watching makes every line several times dearer, so its cost is its share of what its part of the step takes in ordinary
steps, not what it took in a window.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from ..recording.lines import LateSharding, LinesWindow, SameResultsWindow
from ..recording.model import ProcessRecording
from . import windows
from .model import CallSite, CodeLine, Line, Missing, SameResult, Site, Step

_WAIT, _IN_A_WORKER = "input_wait", "other"
"""The part of the step in which batches are made: workers know no other."""
L = TypeVar("L", Line, CodeLine)


def call_sites(process: ProcessRecording) -> tuple[CallSite, ...] | Missing:
    """Telling calls, the most expensive line first."""
    window = windows.call_sites(process)
    if isinstance(window, Missing):
        return window
    return tuple(sorted(window.calls, key=lambda call: -call.ms_per_step))


def hot_lines(process: ProcessRecording, step: Step | Missing) -> tuple[Line, ...] | Missing:
    """Lines by the operators that they issue, the most expensive first."""
    window = windows.call_sites(process)
    if isinstance(window, Missing):
        return window
    return step if isinstance(step, Missing) else _in_ordinary_steps(window.lines, step)


def code_lines(process: ProcessRecording, step: Step | Missing) -> tuple[CodeLine, ...] | Missing:
    """Lines by all that they do, the most expensive first."""
    window = windows.lines(process)
    if isinstance(window, Missing):
        return window
    return step if isinstance(step, Missing) else _in_ordinary_steps(window.lines, step)


def same_results(process: ProcessRecording, step: Step | Missing) -> tuple[SameResult, ...] | Missing:
    """Functions that are called again for what they have returned before, the most expensive first."""
    window = windows.same_results(process)
    if isinstance(window, Missing):
        return window
    if isinstance(step, Missing):
        return step
    parts = step.parts.as_dict()
    found = [replace(one, ms_per_step=min(one.ms_per_step, parts.get(one.part, 0.0))) for one in window.rows]
    return tuple(sorted(found, key=lambda one: -one.ms_per_step))


def _in_ordinary_steps(lines: Sequence[L], step: Step) -> tuple[L, ...]:
    parts = step.parts.as_dict()
    found = [replace(line, ms_per_step=parts.get(line.part, 0.0) * line.share) for line in lines]
    return tuple(sorted(found, key=lambda line: (-line.ms_per_step, -line.share)))


def making(workers: Sequence[ProcessRecording]) -> tuple[CodeLine, ...]:
    """Lines of the data set and `collate_fn` in the workers of a loader, with their share of making a batch, the
    largest first."""
    # Workers make alike batches: the longest says the most.
    watched = [worker.making for worker in workers if worker.making is not None]
    return _made(max(watched, key=lambda batch: batch.total_ms), _IN_A_WORKER) if watched else ()


def making_here(process: ProcessRecording, loaders: Collection[int], times: float) -> tuple[CodeLine, ...]:
    """The same in the training process: lines whose function was called while the loop waited for a batch of these
    loaders. It waits that many `times` as long for all loaders."""
    window = process.code_lines
    if not isinstance(window, LinesWindow):
        return ()
    lines = _made(window, _WAIT)
    if times == 1 or not any(line.loaders for line in lines):  # the only loader; or nobody knows which
        return lines
    shares = [(line, line.share * line.fraction(loaders) * times) for line in lines]
    # The steps of the window may have waited for this one more than others do.
    whole = max(1.0, sum(share for _, share in shares))
    found = [replace(line, share=share / whole) for line, share in shares if share > 0]
    return tuple(sorted(found, key=lambda line: -line.share))


def _made(window: LinesWindow, part: str) -> tuple[CodeLine, ...]:
    found = [line for line in window.lines if line.called and line.part == part]
    return tuple(sorted(found, key=lambda line: -line.share))


def same_making(workers: Sequence[ProcessRecording]) -> tuple[SameResult, ...]:
    """Those of them that the making of batches calls in the workers of a loader, the dearest first, per batch."""
    # Workers make alike batches: the one that lost least says what is sure.
    watched = [worker.same_making.rows for worker in workers if worker.same_making is not None]
    return min(watched, key=lambda rows: sum(one.ms_per_step for one in rows), default=())


def same_making_here(
    process: ProcessRecording, loaders: Collection[int], batches_per_step: float
) -> tuple[SameResult, ...]:
    """The same in the training process, while the loop waits for a batch of these loaders."""
    window = process.same_results
    rows = window.rows if isinstance(window, SameResultsWindow) else ()
    batches = max(batches_per_step, 1e-9)
    return tuple(
        replace(one, ms_per_step=one.ms_per_step / batches, calls_per_step=one.calls_per_step / batches)
        for one in rows
        if one.part == _WAIT and (one.loader < 0 or one.loader in loaders)
    )


def late_sharding(workers: Sequence[ProcessRecording]) -> LateSharding | None:
    """The line at which all workers of a loader that were looked at keep shares of samples that are made, the dearest;
    as it was in the worker that lost least."""
    watched = [worker.late_sharding.rows for worker in workers if worker.late_sharding is not None]
    by_line: dict[Site, list[LateSharding]] = {}
    for rows in watched:
        for row in rows:
            by_line.setdefault(row.site, []).append(row)
    # One worker alone may keep every second sample for any other reason.
    shared = [
        min(rows, key=lambda row: row.discarded_share)
        for rows in by_line.values()
        if len(rows) == len(watched) and len({row.share_number for row in rows}) > 1
    ]
    return max(shared, key=lambda row: row.discarded_share, default=None)
