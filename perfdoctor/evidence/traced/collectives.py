"""Communication on the device: what is exposed, and with all ranks what is transport and what is waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.model import NOT_SAID, Floats, Trace, Work
from ..model import Collectives, LateRank, Missing
from . import names
from .device import Scene, communicates

ONE_RANK = Missing(
    "the trace is of one rank, so that waiting for other ranks and sending cannot be told apart",
    "give the traces of all ranks: perfdoctor report DIRECTORY",
)
_NAMES = 3
_LEAST_STEPS = 3
"""In fewer a rank that is late once looks like one that always is."""
_ALWAYS = 0.75
"""Of the steps, in which a rank comes last: ranks that take turns do so in half of them, or less."""
NO_LATE_RANK = Missing("no rank is the last in nearly all steps")


@dataclass(frozen=True, slots=True)
class _Talk:
    """The collectives of one rank, in the order in which they began."""

    names: tuple[str, ...]
    took_us: Floats


def collectives(scenes: Mapping[int, Scene]) -> Mapping[int, Collectives | None]:
    """Of each rank."""
    talks = {rank: _talk(scene) for rank, scene in scenes.items()}
    worlds = {scene.trace.world_size for scene in scenes.values()}
    least = _least(list(talks.values()), worlds.pop() if len(worlds) == 1 else None)
    late = least if isinstance(least, Missing) else _late(talks, {scene.window.steps for scene in scenes.values()})
    return {rank: _of_one(scene, talks[rank], least, late) for rank, scene in scenes.items()}


def _talk(scene: Scene) -> _Talk:
    work = _inside(scene)
    label = _labels(scene.trace, work)
    return _Talk(tuple(label), work.end_us - work.start_us)


def _inside(scene: Scene) -> Work:
    work = scene.work.where(communicates(scene.trace, scene.work))
    # One whose launch lies before the trace is of the step before, on this rank and perhaps on no other.
    return work.where((work.call != NOT_SAID) | (work.correlation == NOT_SAID))


def _labels(trace: Trace, work: Work) -> list[str]:
    stated = [trace.named(int(one)) for one in work.collective]
    return [one or names.collective(trace.named(int(name))) for one, name in zip(stated, work.name, strict=True)]


def _least(talks: Sequence[_Talk], world: int | None) -> Floats | Missing:
    """Of each collective, over the ranks: the rank that comes last waits for nobody."""
    if len(talks) < 2:
        return ONE_RANK
    if world is not None and len(talks) < world:
        return Missing(
            f"the traces are of {len(talks)} of {world} ranks, so that waiting and sending cannot be told apart",
            "give the traces of all ranks",
        )
    if len({talk.names for talk in talks}) > 1:
        return Missing("the ranks have different collectives in their traces", "record the same steps on all ranks")
    return np.asarray(np.min([talk.took_us for talk in talks], axis=0))


def _late(talks: Mapping[int, _Talk], steps: set[int]) -> LateRank | Missing:
    """Step by step: the last to come is in the collectives for the shortest time."""
    number = steps.pop() if len(steps) == 1 else 0
    count = len(next(iter(talks.values())).took_us)
    if number < _LEAST_STEPS or not count or count % number:
        return Missing(
            "too few steps tell a rank that is always late from one that was late once",
            "record five steps or more, the same on all ranks",
        )
    ranks = list(talks)
    in_them = np.array([talks[rank].took_us.reshape(number, -1).sum(axis=1) for rank in ranks])
    last = in_them.argmin(axis=0)
    late = int(np.bincount(last).argmax())
    share = float((last == late).mean())
    behind = np.delete(in_them, late, axis=0).min(axis=0) - in_them[late]
    ms = float(behind.mean()) / 1000
    return LateRank(ranks[late], ms, share) if share >= _ALWAYS and ms > 0 else NO_LATE_RANK


def _of_one(scene: Scene, talk: _Talk, least: Floats | Missing, late: LateRank | Missing) -> Collectives | None:
    seg, steps = scene.segments, scene.window.steps
    if not seg["communication"].any():
        return None
    by_name: dict[str, float] = {}
    for name, took in zip(talk.names, talk.took_us, strict=True):
        by_name[name] = by_name.get(name, 0.0) + float(took)
    longest = sorted(by_name, key=lambda name: -by_name[name])[:_NAMES]
    transport: float | Missing = least if isinstance(least, Missing) else float(least.sum()) / 1000 / steps
    waiting = transport if isinstance(transport, Missing) else float(talk.took_us.sum()) / 1000 / steps - transport
    return Collectives(
        per_step=float(communicates(scene.trace, scene.work).sum()) / steps,
        ms=scene.per_step(seg["communication"]),
        exposed_ms=scene.per_step(seg["communication"] & ~seg["computing"]),
        transport_ms=transport,
        waiting_ms=waiting,
        late=late,
        names=tuple(longest),
    )
