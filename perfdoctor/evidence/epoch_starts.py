"""What the loop does again and again between two of its steps: the start of an epoch, or an evaluation."""

from __future__ import annotations

from dataclasses import replace

from ..recording.lines import CodeLine, EpochStartsWindow, SameResult
from ..recording.model import ProcessRecording
from ..recording.repeats import BetweenWindow
from . import windows
from .evaluation import held
from .model import EpochStarts, Missing, Step
from .steady import REGULAR_SHARE, Selection, awaited

_WAIT = "input_wait"
"""The part of a step in which batches are made."""
_PAIR = 2
"""Starts that were looked at: in one alone nothing comes again."""


def build(process: ProcessRecording, selection: Selection, step: Step | Missing) -> EpochStarts | None:
    """What comes again at each of them, and what one of them computes needlessly; None where none was looked at."""
    long, rows = process.long_steps, selection.rows
    followed, watched = process.epoch_starts, process.between
    if long is None or isinstance(step, Missing):
        return None
    starts = awaited(process, rows["step"]) & (rows["step"] > 0)
    # Watching them takes time: those of the others count, where there are any.
    usual = starts & (rows["marked"] == 0)
    walls = rows["wall_us"][usual if usual.any() else starts] / 1000
    ms = max(0.0, float(walls.mean()) - step.step_ms) if len(walls) else 0.0
    found = EpochStarts(
        rows=(),
        repeated=(),
        equivalents=(),
        starts=0,
        every_steps=long.length,
        ms=ms,
        regular=1 / long.length > REGULAR_SHARE or process.cycle is not None,
    )
    if isinstance(watched, BetweenWindow):
        usually = min(1.0, ms / watched.ops_ms) if watched.ops_ms > 0 else 1.0, 1 / long.length
        found = replace(
            found,
            repeated=windows.repeated_in(watched.rows, *usually),
            equivalents=windows.equivalents_in(watched.equivalents, *usually),
            lines=tuple(_usual(line, watched, ms) for line in watched.lines),
        )
    if isinstance(followed, EpochStartsWindow) and followed.starts >= _PAIR:
        training = set(held(process).training_loaders.tolist())
        same = [
            replace(one, ms_per_step=min(one.ms_per_step, ms)) for one in followed.rows if _is_between(one, training)
        ]
        ranked = tuple(sorted(same, key=lambda one: -one.ms_per_step))
        found = replace(found, rows=ranked, starts=followed.starts)
    return found


def _usual(line: CodeLine, watched: BetweenWindow, ms: float) -> CodeLine:
    """As in such a step that nobody watches: tracing lines and operators makes it longer."""
    scale = min(1.0, ms / watched.total_ms) if watched.total_ms > 0 else 1.0
    return replace(line, ms_per_step=line.ms_per_step * scale)


def _is_between(one: SameResult, training: set[int]) -> bool:
    """Whether it is not the making of a training batch, which is what other steps do too."""
    return one.part != _WAIT or (one.loader >= 0 and one.loader not in training)
