"""The rank that the others wait for, and what its own time is made of."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Finding, Fix, Measurement, Part, Severity, milliseconds, savings, share
from perfdoctor.api.quantities import Communication, Missing, RankTimes

from .case import Case

_NAMED = 0.5
"""Of what the rank is late by: who explains less is not the reason."""
_CONCENTRATED = 0.4
"""By which a part's share of what the late rank has more exceeds its share of the others' own time. Work made longer on
purpose had 0.5 to 0.9 in its part, a neighbour at most 0.2 in any."""
_STAYS = 0.75
"""Of the steps, in which a rank comes last for want of a CPU, from which on it is that CPU's fault: processes that
wander are now on one rank's CPU and now on another's. One that shared a CPU with a pinned rank made it 0.9."""
_LARGER = 1.05
"""Times the samples of the other ranks, from which on a batch is larger: an incomplete last batch is not."""


_OTHERS = "other-processes"


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a rank is late."""

    name: str
    words: str
    excess_ms: float
    """By which the late rank takes longer there than the mean of the others, per step."""
    fix: str
    part: Part = Part.COMPUTE


_FIXES = {
    "input_wait": ("its wait for data", "Look at what makes its batches: shards, files or workers of this rank."),
    "forward": ("its forward pass", "Give all ranks the same work: batches of like sizes, and no code for one rank."),
    "backward": (
        "its backward pass",
        "Give all ranks the same work: batches of like sizes, and no hooks for one rank.",
    ),
    "optimizer": ("its optimizer step", "Let no rank do more in its optimizer step than the others."),
    "checkpoint": ("saving checkpoints", "Save less often, or in the background."),
    "gc": ("its garbage collections", "Collect on all ranks at the same step: `gc.disable()`, `gc.collect(1)`."),
    "other": (
        "its code outside forward, backward and optimizer",
        "Take what one rank does alone (logging, saving, evaluating) out of the step, or do it less often.",
    ),
}
_PARTS = {"input_wait": Part.INPUT_WAIT, "gc": Part.GC, "other": Part.OTHER, "checkpoint": Part.OTHER}


def late_reason(together: Communication) -> str:
    """What the rank that comes last takes its time for: a part of the step, `other-processes`, `compute`, `several`."""
    reason = _reason(together)
    return reason.name if reason else "several"


def late_rank(case: Case) -> Finding | None:
    """Said by the late rank alone; general, because a finding that names what it does is billed first."""
    together = case.together
    cost = case.worth(together.late_ms)
    if cost is None or case.evidence.rank != together.late or together.late_low_ms <= 0:
        return None  # ranks that take turns: each is the last one now and then
    late, reason = together.late_rank, _reason(together)
    wanders = reason is not None and reason.name == _OTHERS and late.late_share < _STAYS
    because = f": {reason.words} takes {{excess_ms}} longer" if reason else ""
    return Finding(
        id="PD19.late-rank",
        severity=Severity.NOTE if wanders else case.severity(cost),
        confidence=case.confidence,
        message="the others wait {cost_ms} per step ({cost_share}) for rank {rank}" + because,
        reasoning="a collective ends when the last rank comes: rank {rank} is the last in {late_share} of the steps, "
        "with {own_ms} of its own where the others have {others_ms}",
        evidence=(
            *cost.measured("by which it is later than the next rank, per step"),
            Measurement("rank", late.rank, "count", "the rank that is late"),
            share("late_share", late.late_share, "of the steps, in which it comes last"),
            milliseconds("own_ms", late.own_ms, "its own time per step"),
            milliseconds("others_ms", _mean([times.own_ms for times in together.others]), "own time of the others"),
            milliseconds("excess_ms", reason.excess_ms if reason else 0.0, "longer than on the others there"),
        ),
        fix=Fix(text=reason.fix if reason else "Compare what this rank does with what the others do, part by part."),
        savings=savings(
            case.step,
            together.late_low_ms,
            together.late_high_ms,
            "by how much this rank comes later than the next, step by step: at least their mean with its 95 % interval",
            part=reason.part if reason else Part.COMPUTE,
            general=True,
        ),
    )


def _reason(together: Communication) -> _Reason | None:
    """The one that explains at least half.

    More work is more in one part. A CPU that others have makes all parts longer, each by its length, and is asked after
    that: whoever works more on a crowded machine also waits more for a CPU.
    """
    late, others, least = together.late_rank, together.others, _NAMED * together.late_ms
    usual = {name: _mean([times.parts.as_dict()[name] for times in others]) for name in _FIXES}
    excess = {name: late.parts.as_dict()[name] - ms for name, ms in usual.items()}
    name = max(excess, key=lambda part: excess[part])
    more, own = sum(ms for ms in excess.values() if ms > 0), max(sum(usual.values()), 1e-9)
    in_one_part = excess[name] >= least and excess[name] / max(more, 1e-9) >= usual[name] / own + _CONCENTRATED
    delay = _run_delay(late, others)
    if delay >= least and not in_one_part:
        fix = "Move the other process, or pin every rank to CPUs of its own (`taskset`, `numactl`)."
        return _Reason(_OTHERS, "waiting for a CPU that another process has", delay, fix)
    if excess[name] < least:
        passes = sum(excess[part] for part in ("forward", "backward", "optimizer"))
        fix = "Give all ranks the same work: batches of like sizes, and CPUs of the same speed."
        return _Reason("compute", "its computing", passes, fix) if passes >= least else None
    words, fix = _FIXES[name]
    larger = _larger_batches(late, others)
    if larger and name in ("forward", "backward", "input_wait"):
        fix = f"Give all ranks batches of the same size: this one's are {larger:.1f} times as large."
    return _Reason(name, words, excess[name], fix, _PARTS.get(name, Part.COMPUTE))


def _run_delay(late: RankTimes, others: tuple[RankTimes, ...]) -> float:
    """By which it waits longer for a CPU than the others would if they ran as long; 0 where that is not known.

    On a machine that is too busy for all ranks, the one that has more to do also waits longer in all.
    """
    known = [
        times.run_delay_ms / times.cpu_ms
        for times in others
        if not isinstance(times.run_delay_ms, Missing) and times.cpu_ms > 0
    ]
    if isinstance(late.run_delay_ms, Missing) or not known:
        return 0.0
    return late.run_delay_ms - late.cpu_ms * _mean(known)


def _larger_batches(late: RankTimes, others: tuple[RankTimes, ...]) -> float:
    """Times those of the others; 0 where they are about as large, or not known."""
    known = [times.samples for times in others if not isinstance(times.samples, Missing)]
    if isinstance(late.samples, Missing) or not known:
        return 0.0
    times = late.samples / _mean(known)
    return times if times >= _LARGER else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
