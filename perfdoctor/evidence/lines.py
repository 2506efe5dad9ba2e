"""The user's lines in terms of an ordinary step.

Watching makes every line several times dearer, so its cost is its share of what its part of the step takes in ordinary
steps, not what it took in a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ..recording.lines import LinesWindow, SameResultsWindow
from ..recording.model import ProcessRecording
from . import windows
from .model import CallSite, CodeLine, Line, Missing, SameResult, Step

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


def making(process: ProcessRecording, workers: Sequence[ProcessRecording], num_workers: int) -> tuple[CodeLine, ...]:
    """Lines of the data set and `collate_fn` with their share of making a batch, the largest first.

    In the training process: those whose function was called while the loop waited for its batch.
    """
    if not num_workers:
        window = process.code_lines
        return _made(window, _WAIT) if isinstance(window, LinesWindow) else ()
    # Workers make alike batches: the longest says the most.
    watched = [worker.making for worker in workers if worker.making is not None]
    return _made(max(watched, key=lambda batch: batch.total_ms), _IN_A_WORKER) if watched else ()


def _made(window: LinesWindow, part: str) -> tuple[CodeLine, ...]:
    found = [line for line in window.lines if line.called and line.part == part]
    return tuple(sorted(found, key=lambda line: -line.share))


def same_making(
    process: ProcessRecording, workers: Sequence[ProcessRecording], num_workers: int, batches_per_step: float
) -> tuple[SameResult, ...]:
    """Those of them that the making of batches calls, the dearest first, per batch."""
    if not num_workers:
        window = process.same_results
        rows = window.rows if isinstance(window, SameResultsWindow) else ()
        batches = max(batches_per_step, 1e-9)
        return tuple(
            replace(one, ms_per_step=one.ms_per_step / batches, calls_per_step=one.calls_per_step / batches)
            for one in rows
            if one.part == _WAIT
        )
    # Workers make alike batches: the one that lost least says what is sure.
    watched = [worker.same_making.rows for worker in workers if worker.same_making is not None]
    return min(watched, key=lambda rows: sum(one.ms_per_step for one in rows), default=())
