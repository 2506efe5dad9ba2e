"""Lines of the user's code by the time that they took in the line window, in terms of an ordinary step."""

from __future__ import annotations

from collections.abc import Sequence

from ..recording.model import LinesWindow, ProcessRecording
from .model import CodeLine, Missing, Step
from .places import Places

_REMEDY = "let the job run for 30 steps or more"
_WAIT, _IN_A_WORKER = "input_wait", "other"
"""The part of the step in which batches are made: workers know no other."""


def code_lines(process: ProcessRecording, places: Places, step: Step | Missing) -> tuple[CodeLine, ...] | Missing:
    """All lines of the window, the most expensive first.

    Python that is watched line by line is slower than it is, so a line's cost is its share of what its part of the
    step takes in ordinary steps, not what it took in the window.
    """
    window = process.code_lines
    if window is None:
        return Missing("the line window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the line window could not open: {window.missing}")
    if isinstance(step, Missing):
        return step
    return _lines(window, places, step.parts.as_dict())


def making(
    process: ProcessRecording, workers: Sequence[ProcessRecording], num_workers: int, cwd: str
) -> tuple[CodeLine, ...]:
    """Lines of the data set and `collate_fn` with their share of making a batch.

    In the training process: those whose function was called while the loop waited for its batch.
    """
    if not num_workers:
        if process.code_lines is None:
            return ()
        return _made(process.code_lines, Places(process.sites, cwd), _WAIT)
    watched = [worker for worker in workers if worker.making is not None]
    # Workers make alike batches: the longest says the most.
    longest = max(watched, key=lambda worker: _total_us(worker.making), default=None)
    if longest is None or longest.making is None:
        return ()
    return _made(longest.making, Places(longest.sites, cwd), _IN_A_WORKER)


def _made(window: LinesWindow, places: Places, part: str) -> tuple[CodeLine, ...]:
    return tuple(line for line in _lines(window, places, {}) if line.called and line.part == part)


def _total_us(window: LinesWindow | None) -> int:
    return sum(window.lines_us.values()) if window is not None else 0


def _lines(window: LinesWindow, places: Places, parts_ms: dict[str, float]) -> tuple[CodeLine, ...]:
    found = []
    for row in window.lines:
        site, total = places.find(row.site), window.lines_us.get(row.part, 0)
        if site is not None and total > 0:
            share = row.us / total
            found.append(CodeLine(site, row.part, row.called, share * parts_ms.get(row.part, 0.0), share))
    return tuple(sorted(found, key=lambda line: (-line.ms_per_step, -line.share)))
