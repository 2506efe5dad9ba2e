"""Which ranks of a large job are judged by everything that was recorded of them.

A step is as slow as the rank that all others wait for, so that one and the two next to it; rank 0, which logs and saves
for all; and the one in the middle, for what is the same on all of them. What any other rank loses, it loses while it
would only wait for the late one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..recording.model import MANY, ProcessRecording
from .model import Communication, Missing

_LATEST = 3


def choose(ranks: Sequence[ProcessRecording], together: Communication | Missing) -> Sequence[ProcessRecording]:
    """Of `ranks`; all of them where they are not many."""
    if len(ranks) <= MANY:
        return ranks
    own = {process.rank: _own_us(process) for process in ranks}
    late = -1
    if not isinstance(together, Missing):
        own = {times.rank: times.own_ms for times in together.ranks}
        late = together.late
    by_own = sorted(own, key=lambda rank: -own[rank])
    wanted = {late, *by_own[:_LATEST], by_own[len(by_own) // 2], min(own)}
    return [process for process in ranks if process.rank in wanted]


def _own_us(process: ProcessRecording) -> float:
    """Of its steps, the early ones too: where ranks cannot be compared this is only a choice of whom to look at."""
    steps = process.steps
    return float((steps["wall_us"] - steps["communication_us"]).mean()) if len(steps) else 0.0
