"""The ranks that the others wait for, always the same or in turns."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Communication, Evidence, Missing, Site

from .case import Case
from .reasons import FIXES, OTHERS, PARTS, Reason, crowd_ms, mean, reason_of, times_data

_STAYS = 0.75
"""Of the steps, in which a rank comes last for want of a CPU, from which on it is that CPU's fault: processes that
wander are now on one rank's CPU and now on another's. One that shared a CPU with a pinned rank made it 0.9."""
_EXPLAINS = 0.5
"""Of what stragglers cost, from which on the part of the step where they take longer is named."""
_PASSES = ("forward", "backward")
_SHOWN = 3
"""Ranks that are named one by one."""
_COMPARE = "Compare what this rank does with what the others do, part by part."
_CHANCE = "; they wait {crowd_ms} per step for a CPU themselves, so that another rank may be the late one next time"
_DISPATCHED = "; it makes the batches of all ranks and sends them (`dispatch_batches`)"
_BY_EACH = "Let each rank make its own batches, which is the default: `dispatch_batches=None`."


def late_rank(case: Case) -> Finding | None:
    """Said by the late rank alone; general, because a finding that names what it does is billed first."""
    together = case.together
    cost = case.worth(together.late_ms)
    if cost is None or case.evidence.rank != together.late or together.late_low_ms <= 0:
        return None  # ranks that take turns: each is the last one now and then
    late, others, reason = together.late_rank, together.others, reason_of(together)
    wanders = reason is not None and reason.name == OTHERS and together.late_share < _STAYS
    crowd = crowd_ms(others)
    by_chance = (reason is None or not reason.is_clear) and crowd >= together.late_ms
    dispatched = _dispatched(case, reason)
    low, high = (1.0, 1.0) if reason is None else _saved(together, reason.name, dispatched is not None)
    last = "rank {rank} is the last in {late_share} of the steps, with {own_ms} of its own"
    because = f": {reason.words} takes {{excess_ms}} longer" if reason else ""
    if together.beside:
        last = "one of these is, in {late_share} of the steps; {own_ms} of a step are rank {rank}'s own,"
        because += " on rank {rank}" if reason else ""
    return Finding(
        id="PD19.late-node" if together.late_node else "PD19.late-rank",
        severity=Severity.NOTE if wanders or by_chance else case.severity(cost),
        confidence=case.confidence,
        message=f"the others wait {{cost_ms}} per step ({{cost_share}}) for {_named(together)}{because}",
        reasoning=f"a collective ends when the last rank comes: {last} where the others have {{others_ms}}"
        + (_CHANCE if by_chance else "")
        + (_DISPATCHED if dispatched else ""),
        evidence=(
            *cost.measured("by which the next rank waits longer, per step"),
            Measurement("rank", late.rank, "count", "the rank that comes last most"),
            Measurement("late_ranks", 1 + len(together.beside), "count", "ranks that are late"),
            Measurement("node", late.node, "text", "the machine that it ran on; empty where all ran on one"),
            share("late_share", together.late_share, "of the steps, in which a late rank comes last"),
            milliseconds("own_ms", late.own_ms, "its own time per step"),
            milliseconds("others_ms", mean([times.own_ms for times in others]), "own time of the others"),
            milliseconds("excess_ms", reason.excess_ms if reason else 0.0, "longer than on the others there"),
            milliseconds("crowd_ms", crowd, "for which the others wait for a CPU"),
            Measurement("times_data", times_data(late, others), "ratio", "the data of the others, per step"),
        ),
        location=location(dispatched or _line(case.evidence, reason.name)) if reason else None,
        fix=Fix(text=_BY_EACH if dispatched else reason.fix if reason else _COMPARE),
        savings=savings(
            case.step,
            low * together.late_low_ms,
            high * together.late_high_ms,
            "by how much this rank comes later than the next, step by step: at least the lower end of its interval"
            + (", less what the others have to do of it then" if low < 1 else ""),
            part=reason.part if reason else Part.COMPUTE,
            general=True,
        ),
    )


def _dispatched(case: Case, reason: Reason | None) -> Site | None:
    """Where Accelerate is told that the first rank makes the batches of all, if that is why this one is late."""
    waits = reason is not None and reason.name == "input_wait" and case.together.late == 0
    return case.evidence.job.option("dispatch_batches") if waits else None


def _saved(together: Communication, reason: str, dispatched: bool) -> tuple[float, float]:
    """Of what a rank with more data is late by, or one that makes the others' batches: once all have the same, the
    others have their part of that to do.

    Where all of it was told, programs were promised up to 1.5x, 2.5x and 4.1x that gained 1.26x, 1.26x and 1.5x. At
    most half of the others' part is not felt, where their passes are quicker for batches that are alike. Passes that
    take longer may do so for larger samples, which a loop that makes its batches itself does not show: one was promised
    2.0x or more that gained 1.34x.
    """
    shared = 1 - (1 + len(together.beside)) / max(2, len(together.ranks))
    if reason == "data-size":
        return shared, (1 + shared) / 2
    return (shared, 1.0) if reason in _PASSES or dispatched else (1.0, 1.0)


def _line(evidence: Evidence, reason: str) -> Site | Missing | None:
    """Of the late rank's code: what takes longest in the part to blame, or makes the loader whose batches differ; where
    passes take longer on data that the job cuts into a part for each rank, the line that does."""
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    shard = evidence.job.option("shard")
    if shard is not None and reason in (*_PASSES, "data-size"):
        return shard
    if reason == "data-size":
        return loaders[0].site if loaders else None
    lines = () if isinstance(evidence.code_lines, Missing) else evidence.code_lines
    longest = next((line.site for line in lines if line.part == reason), None)
    return loaders[0].site if longest is None and reason == "input_wait" and loaders else longest


def _named(together: Communication) -> str:
    """The late ones in words, a few by number."""
    if together.late_node:
        return "node {node} ({late_ranks:rank})"
    if not together.beside:
        return "rank {rank} (node {node})" if together.late_rank.node else "rank {rank}"
    return _listed(sorted((together.late, *together.beside)))


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _SHOWN:
        return f"{len(ranks)} ranks ({', '.join(map(str, ranks[:_SHOWN]))}, ...)"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def by_turns(case: Case) -> Finding | None:
    """What no rank is to blame for alone; said by the rank that comes last most."""
    together, turns = case.together, case.together.turns
    if turns is None or case.evidence.rank != together.late:
        return None
    told_ms = together.late_ms if together.late_low_ms > 0 else 0.0
    cost = case.worth(turns.ms - told_ms)
    low_ms = turns.low_ms - told_ms
    if cost is None or low_ms <= 0:
        return None
    words, fix = FIXES[turns.part]
    crowd = crowd_ms(together.ranks)
    explained = turns.part_ms >= _EXPLAINS * turns.ms
    return Finding(
        id="PD19.late-by-turns",
        severity=case.severity(cost) if explained and crowd < cost.ms else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="ranks take turns in being late, {cost_ms} per step ({cost_share})"
        + (f": mostly {words.removeprefix('its ')}" if explained else ""),
        reasoning="a collective ends when the last rank comes: in {turns_share} of the steps one takes twice its usual "
        f"time while others do not, by turns {_listed(turns.ranks)}; what one rank takes on average does not show that"
        + (_CHANCE if crowd >= cost.ms else ""),
        evidence=(
            *cost.measured("by which stragglers lengthen the step that no finding about one rank is about"),
            share("turns_share", turns.share, "of the steps"),
            Measurement("rank", turns.ranks[0], "count", "the rank that costs most so"),
            Measurement("straggling_ranks", len(turns.ranks), "count", "ranks that take part"),
            Measurement("part", turns.part, "text", "of the step, in which they take longer then"),
            milliseconds("excess_ms", turns.part_ms, "longer there, per step"),
            milliseconds("crowd_ms", crowd, "for which ranks wait for a CPU"),
        ),
        fix=Fix(text=fix + " What every rank must do now and then costs once if all do it in the same step."),
        savings=savings(
            case.step,
            low_ms,
            cost.ms,
            "by how much single steps are longer than those in which no rank straggles",
            part=PARTS.get(turns.part, Part.COMPUTE),
            general=True,
        ),
    )
