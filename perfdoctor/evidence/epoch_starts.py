"""What the loop does again and again between two of its steps: the start of an epoch, or an evaluation."""

from __future__ import annotations

from dataclasses import replace

from ..recording.lines import SameResult
from ..recording.model import ProcessRecording
from . import windows
from .evaluation import held
from .model import EpochStarts, Missing, Step
from .steady import REGULAR_SHARE, Selection, awaited

_WAIT = "input_wait"
"""The part of a step in which batches are made."""
_PAIR = 2
"""Starts that were looked at: in one alone nothing comes again."""


def build(process: ProcessRecording, selection: Selection, step: Step | Missing) -> EpochStarts | Missing | None:
    """Functions that return the same at each of them; None where none was waited for, or only one came."""
    window, long = windows.epoch_starts(process), process.long_steps
    if isinstance(window, Missing):
        return window
    if window is None or window.starts < _PAIR or long is None or isinstance(step, Missing):
        return None
    rows = selection.rows
    starts = awaited(process, rows["step"]) & (rows["step"] > 0)
    # Watching them takes time: those of the others count, where there are any.
    usual = starts & (rows["marked"] == 0)
    walls = rows["wall_us"][usual if usual.any() else starts] / 1000
    ms = max(0.0, float(walls.mean()) - step.step_ms) if len(walls) else 0.0
    training = set(held(process).training_loaders.tolist())
    found = [replace(one, ms_per_step=min(one.ms_per_step, ms)) for one in window.rows if _is_between(one, training)]
    return EpochStarts(
        rows=tuple(sorted(found, key=lambda one: -one.ms_per_step)),
        starts=window.starts,
        every_steps=long.length,
        ms=ms,
        regular=1 / long.length > REGULAR_SHARE or process.cycle is not None,
    )


def _is_between(one: SameResult, training: set[int]) -> bool:
    """Whether it is not the making of a training batch, which is what other steps do too."""
    return one.part != _WAIT or (one.loader >= 0 and one.loader not in training)
