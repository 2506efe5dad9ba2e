"""What comes once in many steps, and takes longer each time for what the job keeps: the outputs of all evaluations."""

from __future__ import annotations

import numpy as np

from ..recording.base import Site
from ..recording.growth import GrowingContainer
from ..recording.lines import LinesWindow
from ..recording.model import ProcessRecording
from ..recording.repeats import BetweenWindow
from .model import LongerRounds
from .steady import Selection, awaited

_LEAST = 4
"""Beside the first, which warms up."""
_WHOLE_ROUNDS = 2
"""Of elements that a container of a library's has in the end, which one that is emptied after each round never has."""
_LONGER = 1.5
"""Times the early ones, the quickest of the last against the slowest of the first: they are few, and some may have met
a neighbour."""


def build(process: ProcessRecording, steps: Selection) -> LongerRounds | None:
    """By the steps that are known to take long at equal distances, and by a container whose lines run in them alone."""
    long, growth, window = process.long_steps, process.growth, process.between
    if long is None or growth is None or not isinstance(window, BetweenWindow):
        return None
    rows = process.steps
    here = awaited(process, rows["step"]) & (rows["step"] >= steps.first)
    beyond_ms = (rows["wall_us"][here] - np.median(steps.column("wall_us")))[1:].clip(min=0) / 1000
    if len(beyond_ms) < _LEAST:
        return None
    third = len(beyond_ms) // 3
    early, late = beyond_ms[:third], beyond_ms[-third:]
    found = _kept(process, growth.containers, window, long.length)
    if found is None or late.min() < _LONGER * early.max():
        return None
    return LongerRounds(
        every=long.length,
        count=len(beyond_ms),
        early_ms=float(early.mean()),
        late_ms=float(late.mean()),
        longer_ms=float((beyond_ms - early.mean()).clip(min=0).mean()),
        kept=found[0],
        gone_through_at=found[1],
    )


def _kept(
    process: ProcessRecording, containers: tuple[GrowingContainer, ...], window: BetweenWindow, every: int
) -> tuple[GrowingContainer, Site] | None:
    """One that gains an element in each round or more, and the line that uses it then; none that a step uses. What a
    library keeps (a metric) may gain them in steps, by lines that name its keeper."""
    in_steps = [one for one in (process.code_lines, process.later_lines) if isinstance(one, LinesWindow)]
    known = {(line.site.file, line.site.line) for one in in_steps for line in one.lines}
    ran = {(site.file, site.line) for site in window.ran}
    for one in containers:
        uses = {(site.file, site.line): site for site in one.uses if site != one.site}
        reads = sorted(place for place in uses if place in ran and place not in known)
        per_round = one.per_step * every
        is_apart = one.length >= _WHOLE_ROUNDS * per_round if one.site is None else not known & set(uses)
        if reads and per_round >= 1 and is_apart:
            # A metric is asked for its value after it was given its numbers.
            return one, uses[reads[-1 if one.site is None else 0]]
    return None
