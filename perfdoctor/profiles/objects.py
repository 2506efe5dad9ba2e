"""What Python holds, by type and by line, and what noting the lines has cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..evidence import steady
from ..recording.base import Missing
from ..recording.memory import LineHeld, TypeHeld
from ..recording.model import ProcessRecording, Recording


@dataclass(frozen=True, slots=True)
class ObjectsProfile:
    """Of one rank."""

    name: str
    """`Python`, `Python of rank 1`."""
    steps: int
    """Between the two moments at which objects were counted."""
    types: tuple[TypeHeld, ...]
    lines: tuple[LineHeld, ...]
    by_line: bool
    is_cut: bool
    slower: float | None
    """How many times as long a step took while lines were noted; None where that is not known."""


def build(recording: Recording) -> tuple[ObjectsProfile, ...]:
    """Of every rank whose objects were counted."""
    found = []
    for process in recording.ranks:
        window = process.objects
        if window is None or isinstance(window, Missing):
            continue
        found.append(
            ObjectsProfile(
                name=f"Python of rank {process.rank}" if len(recording.ranks) > 1 else "Python",
                steps=window.steps,
                types=window.types,
                lines=window.lines,
                by_line=window.by_line,
                is_cut=window.is_cut,
                slower=_slower(process, window.first_step, window.steps) if window.by_line else None,
            )
        )
    return tuple(found)


def _slower(process: ProcessRecording, first: int, steps: int) -> float | None:
    selection = steady.select(process)
    if isinstance(selection, Missing):
        return None
    number = process.steps["step"]
    walls = process.steps["wall_us"][(number >= first) & (number < first + steps)]
    usual = float(np.median(selection.column("wall_us")))
    return float(np.median(walls)) / usual if len(walls) and usual else None
