"""Why a rank is late: what its own time is made of, beside that of the ranks that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Part
from perfdoctor.api.quantities import Communication, Missing, RankTimes

_NAMED = 0.5
"""Of what the rank is late by: who explains less is not the reason."""
_CONCENTRATED = 0.4
"""By which a part's share of what the late rank has more exceeds its share of the others' own time. Work made longer on
purpose had 0.5 to 0.9 in its part, a neighbour at most 0.2 in any."""
_LOWER = 0.9
"""Of the other ranks' clock: CPUs of one kind differ by a few per cent at the same load."""
_LARGER = 1.05
"""Times the samples or bytes of the other ranks, from which on a batch is larger: an incomplete last batch is not."""
_PROPORTIONAL = 2.5
"""Times what the passes would be longer if they took time by their data alone, at most: attention grows with the square
of the length. They may be less longer, for a part of a pass is its overhead."""
_EVENLY = 0.25
"""Of how much longer the worst of forward pass, backward pass and optimizer takes, by which each takes longer at least
on a slower machine: its caches and memory slow some operators more than others. More work is in one of them."""
_COUNTS = 0.05
"""Of a rank's own time: what takes less is no witness."""
OTHERS = "other-processes"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rank is late."""

    name: str
    words: str
    excess_ms: float
    """By which the late rank takes longer there than the mean of the others, per step."""
    fix: str
    part: Part = Part.COMPUTE
    is_clear: bool = True
    """False where all that it does takes longer, which CPUs that are short make any rank's work do."""


FIXES = {
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
_PASSES = ("forward", "backward", "optimizer")
PARTS = {"input_wait": Part.INPUT_WAIT, "gc": Part.GC, "other": Part.OTHER, "checkpoint": Part.OTHER}


def late_reason(together: Communication) -> str:
    """What the rank that comes last takes its time for: a part of the step, `data-size`, `throttled`, `lower-clock`,
    `slower-machine`, `other-processes`, `compute` or `several`."""
    reason = reason_of(together)
    return reason.name if reason else "several"


def reason_of(together: Communication) -> Reason | None:
    """The one that explains at least half.

    More data is longer passes, in proportion to it at most. A quota that stops this rank alone, or a slower CPU, makes
    everything longer, and is asked before the parts. Other work is more in one part, and takes CPU time or at
    least longer than the rank stood runnable without a CPU. A CPU that others have makes the parts longer that were
    running, with no CPU time more, and is asked after that: whoever works more on a crowded machine also waits more for
    a CPU.
    """
    late, others = together.late_rank, together.others
    if not others or together.late_ms <= 0:
        return None
    # Of ranks that are late by turns each has its share only.
    by_ms = min(together.late_ms, late.own_ms - mean([times.own_ms for times in others]))
    least = _NAMED * max(0.0, by_ms)
    passes = _more_data(late, others)
    if passes >= least:
        fix = "Give all ranks batches of the same size: shards by samples or tokens, not by files."
        return Reason("data-size", "computing {times_data} the data", passes, fix)
    usual = {name: mean([times.parts.as_dict()[name] for times in others]) for name in FIXES}
    excess = {name: late.parts.as_dict()[name] - ms for name, ms in usual.items()}
    name = max(excess, key=lambda part: excess[part])
    more, own = sum(ms for ms in excess.values() if ms > 0), max(sum(usual.values()), 1e-9)
    in_one_part = excess[name] >= least and excess[name] / max(more, 1e-9) >= usual[name] / own + _CONCENTRATED
    delay = _run_delay(late, others)
    works = max(excess[name] - delay, late.cpu_ms - mean([times.cpu_ms for times in others])) >= least
    slowed = _held_back(late, others, least)
    if slowed is not None:
        return slowed
    if delay >= least and not (in_one_part and works):
        fix = "Move the other process, or pin every rank to CPUs of its own (`taskset`, `numactl`)."
        return Reason(OTHERS, "waiting for a CPU that another process has", delay, fix)
    passes = sum(excess[part] for part in _PASSES)
    if together.late_node and passes >= least and not in_one_part and _is_slower_in_all(late, usual, own):
        fix = "Look at this machine: its CPU's model, clock and power limit, its memory, what else runs on it; or give "
        return Reason("slower-machine", "the same computing", passes, fix + "its ranks smaller batches.")
    if excess[name] < least:
        fix = "Give all ranks the same work: batches of like sizes, and CPUs of the same speed."
        return Reason("compute", "its computing", passes, fix, is_clear=False) if passes >= least else None
    words, fix = FIXES[name]
    return Reason(name, words, excess[name], fix, PARTS.get(name, Part.COMPUTE), in_one_part and works)


def _is_slower_in_all(late: RankTimes, usual: dict[str, float], own_ms: float) -> bool:
    """Whether all passes take longer, and none of them far more than the others."""
    spent = late.parts.as_dict()
    longer = [spent[part] / usual[part] - 1 for part in _PASSES if usual[part] >= _COUNTS * own_ms]
    return len(longer) > 1 and min(longer) >= _EVENLY * max(longer) > 0


def crowd_ms(others: tuple[RankTimes, ...]) -> float:
    """For how long the ranks that are not late wait for a CPU; 0 where that is not known."""
    known = [times.run_delay_ms for times in others if not isinstance(times.run_delay_ms, Missing)]
    return mean(known) if len(known) == len(others) else 0.0


def _held_back(late: RankTimes, others: tuple[RankTimes, ...], least: float) -> Reason | None:
    """By a quota of its own, or a slower CPU. A rank with more to do meets its quota more often: then its work is to
    blame; and a kernel counts the time that a quota stops a thread for as a wait for a CPU."""
    stopped = late.throttled_ms - mean([times.throttled_ms for times in others])
    if stopped >= least and late.cpu_ms - mean([times.cpu_ms for times in others]) < least:
        fix = (
            "Raise the CPU quota of this rank's container to that of the others, or give it fewer threads and workers."
        )
        return Reason("throttled", "being stopped by its CPU quota", stopped, fix)
    usual = mean([times.clock_mhz for times in others])
    if not late.clock_mhz or not all(times.clock_mhz for times in others) or late.clock_mhz > _LOWER * usual:
        return None
    slower = late.cpu_ms * (1 - late.clock_mhz / usual)
    fix = "See to the cooling and the power limit of its CPU, or pin ranks to CPUs of the same speed."
    words = f"computing at {late.clock_mhz:,.0f} MHz instead of {usual:,.0f}"
    return Reason("lower-clock", words, slower, fix) if slower >= least else None


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
    return late.run_delay_ms - late.cpu_ms * mean(known)


def _more_data(late: RankTimes, others: tuple[RankTimes, ...]) -> float:
    """By how much its passes are longer, ms, if its data can make them so much longer; else 0."""
    times = times_data(late, others)
    usual = mean([one.parts.forward + one.parts.backward for one in others])
    longer = late.parts.forward + late.parts.backward - usual
    if times < _LARGER or usual <= 0:
        return 0.0
    return longer if 0 < longer <= _PROPORTIONAL * (times - 1) * usual else 0.0


def times_data(late: RankTimes, others: tuple[RankTimes, ...]) -> float:
    """Samples per step, or bytes where those are as many (longer sequences), times those of the others; 1 where neither
    is known."""
    found = [1.0]
    for mine, theirs in (
        (late.samples, [times.samples for times in others]),
        (late.batch_bytes, [times.batch_bytes for times in others]),
    ):
        known = [value for value in theirs if not isinstance(value, Missing)]
        if not isinstance(mine, Missing) and known and mean(known) > 0:
            found.append(mine / mean(known))
    return max(found)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
