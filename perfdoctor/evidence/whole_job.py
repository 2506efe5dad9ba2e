"""What the whole job would take that perfdoctor ended, where its loop says how many steps it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..recording.model import Ints, ProcessRecording
from .model import JobParts, Missing, WholeJob
from .steady import Selection
from .trend import DRIFT, trend

RECURRING = ("epoch_starts", "evaluation", "inference", "checkpoints", "logging", "between")
"""Parts that come again and again, and not in every step."""
_LOOKED_FOR = ("epoch_starts", "evaluation", "checkpoints")
"""Of these, what most jobs have: that none was seen in a few hundred steps does not mean that there is none."""
_REGULAR = 1.5
"""Times the shortest way from one to the next, up to which they come at regular steps."""
_AT_EPOCH = 0.02
"""Of an epoch, and two steps: so near to its border lies what comes once an epoch."""


@dataclass(frozen=True, slots=True)
class Recurring:
    """A part of the job, as it was seen after the warm-up."""

    name: str
    """A field of `JobParts`."""
    ms: float
    steps: Ints
    """Numbers of the steps that held some."""


def extrapolated(
    process: ProcessRecording, selection: Selection | Missing, parts: JobParts, recurring: Sequence[Recurring]
) -> WholeJob | Missing:
    """`parts` are those of the observed job."""
    plan, later = process.planned, process.afterwards
    if later is not None:
        at = f"{later.site.file}:{later.site.line}"
        return Missing(f"after this loop it trains on at {at}", "watch all of it with --to-end", code="trains-on")
    if plan is None:
        return Missing("how many steps the job takes is not known")
    if plan.steps <= len(process.steps):
        return Missing("all steps of its loop were seen")
    if isinstance(selection, Missing):
        return selection
    course = trend(selection)
    if isinstance(course, Missing):
        return course
    if (course.is_gradual and course.low >= DRIFT) or course.high <= -DRIFT:
        return Missing("its steps do not stay as long as they are", code="drifts")
    seen = len(process.steps)
    left = plan.steps - seen
    after = int((process.steps["step"] >= selection.first).sum())
    more = {"steady": parts.steady * left / max(1, after)}
    has_epochs = 0 < plan.epoch < plan.steps
    once = []
    for one in recurring:
        every = _every(one.steps, plan.epoch, after)
        if every:
            more[one.name] = one.ms / len(one.steps) * left / every
        elif len(one.steps) and one.name in _LOOKED_FOR:
            once.append(one.name)
    known = parts.as_dict()
    # Without a loader an evaluation is told as forward passes without training.
    there = {"epoch_starts": has_epochs, "evaluation": not parts.inference}
    looked_for = [name for name in _LOOKED_FOR if there.get(name, True)]
    whole = replace(parts, observing=0.0, **{name: known[name] + ms for name, ms in more.items()})
    return WholeJob(
        wall_ms=whole.total,
        parts=whole,
        steps=plan.steps,
        by=plan.by,
        at_most=plan.at_most,
        unseen=tuple(name for name in looked_for if not known[name]),
        once=tuple(once),
    )


def _every(steps: Ints, epoch: int, seen: int) -> float:
    """Steps from one to the next; 0 where that is not known: none, or a single one that lies inside an epoch."""
    if len(steps) > 1:
        gaps = np.diff(steps)
        return float(gaps.mean()) if gaps.max() <= _REGULAR * gaps.min() else seen / len(steps)
    if not len(steps) or not epoch:
        return 0.0
    beside = int(steps[0]) % epoch
    return float(epoch) if min(beside, epoch - beside) <= max(2, _AT_EPOCH * epoch) else 0.0
