"""Stretches of a job's steps that are made by other lines of its code, and which of them are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .base import Site

NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch begins, or more is known of the one under way."""

    step: int
    """Its first. A later record of step 0 says that there are no phases: lines that take turns from step to step."""
    number: int
    """Of the phase that it is a stretch of, in the order in which they first began."""
    judged: bool
    """Whether its phase takes longer than those before. The last one of which this was said is judged."""
    steps: int = 0
    """That the stretch will have, by its loops' own numbers; 0 where they say nothing."""
    later: Site | None = None
    """The first line that trains once its loop is over, by the source of the functions under way."""


def judged_steps(phases: Sequence[Phase]) -> tuple[tuple[int, int], ...]:
    """The stretches of the phase that is judged, from their first step to one past their last; the very last one may
    be `NO_END`."""
    judged = [phase.number for phase in phases if phase.judged]
    if not judged or phases[-1].step == 0:
        return ((0, NO_END),)
    begins: dict[int, int] = {phase.step: phase.number for phase in phases}
    borders = (*sorted(begins), NO_END)
    return tuple((one, other) for one, other in pairwise(borders) if begins[one] == judged[-1])


def is_judged(phases: Sequence[Phase], step: int) -> bool:
    """Whether it is one of those steps."""
    return any(first <= step < end for first, end in judged_steps(phases))
