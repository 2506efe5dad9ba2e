"""From the recordings of all ranks of a job: who waits for whom.

All ranks leave a synchronisation together, so a rank's own time runs from its end of one to its arrival at the next:
its step without what it waits in collectives. Steps are matched by number. A step that is not steady on every rank is
left out on all, and so are those around the moments when the probe wrote to its file, which one rank does while the
others wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import numpy as np
import numpy.typing as npt

from ..recording.model import Ints, ProcessRecording
from ..recording.parallel import Division
from ..recording.settings import ReducedModel
from . import lateness, steady
from .lateness import Last
from .model import Collective, Communication, Missing, Parts, RankTimes, SharedData, Site, Turns
from .nodes import nodes
from .steady import MIN_STEADY, Mask, Selection

Floats = npt.NDArray[np.float64]
_Line = tuple[str, Site | None]
_NAMES = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc", "communication")
_AFTER = 2
"""Steps from the writing of a file on whose waits are not the job's: what one rank is kept from work, the others wait
for in the same step or in the next."""


_MOST_OF = 0.5
"""Of the ranks, that must be left for a comparison without those whose recordings are short."""


@dataclass(frozen=True, slots=True)
class _Rank:
    process: ProcessRecording
    selection: Selection
    common: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    """Over the selection's rows: the steps that are steady on all ranks."""


def build(processes: Sequence[ProcessRecording]) -> Communication | Missing:
    """Of the ranks of one job."""
    if max((process.world_size for process in processes), default=1) < 2:
        return Missing("the job has one rank")
    if len(processes) < 2:
        return Missing("no other rank was recorded")
    if len({process.rank for process in processes}) < len(processes):
        return Missing("several processes have the number of one rank: they belong to no group of torch's")
    if any(process.settings is not None and process.settings.cuda is not None for process in processes):
        return Missing("on a CUDA device ranks wait for each other on the device, and only the host's time was taken")
    selected = [(process, steady.select(process)) for process in processes]
    ranks = _long_enough([_Rank(process, one) for process, one in selected if not isinstance(one, Missing)])
    if len(ranks) <= _MOST_OF * len(processes):
        rank, why = next((process.rank, one) for process, one in selected if isinstance(one, Missing))
        return Missing(f"rank {rank} has no steady step: {why.reason}", why.remedy)
    common = _common_steps(ranks)
    if common.size < MIN_STEADY:
        return Missing(f"only {common.size} steps were steady on every rank", "let the job run longer")
    ranks = [replace(rank, common=np.isin(rank.selection.rows["step"], common)) for rank in ranks]
    waits = np.array([_column(rank, "communication_us") for rank in ranks])
    if not waits.any():
        return Missing("the ranks were not seen to wait for each other: they exchange nothing, or inside compiled code")
    compared = {rank.process.rank for rank in ranks}
    left_out = tuple(process.rank for process in processes if process.rank not in compared)
    return replace(_compared(ranks, common, waits), left_out=left_out)


def _long_enough(ranks: Sequence[_Rank]) -> Sequence[_Rank]:
    """Without those whose recordings ended early, as on a node that died: what is steady on all ranks would be no more
    than they have. All where these are not few."""
    usual = float(np.median([rank.selection.count for rank in ranks])) if ranks else 0.0
    long = [rank for rank in ranks if 2 * rank.selection.count >= usual]
    return long if len(long) > _MOST_OF * len(ranks) else ranks


def _compared(ranks: Sequence[_Rank], common: Ints, waits: Floats) -> Communication:
    numbers = [rank.process.rank for rank in ranks]
    alike = _alike([rank.process for rank in ranks])
    machines = nodes([rank.process for rank in ranks])
    last = _last(waits, alike, [_cpus(rank.process, node) for rank, node in zip(ranks, machines, strict=True)])
    late, *beside = last.rows
    shares = np.bincount(waits.argmin(axis=0), minlength=len(ranks)) / common.size
    places = zip(ranks, machines, alike, shares.tolist(), strict=True)
    divisions = [rank.process.division or Division() for rank in ranks]
    return Communication(
        steps=int(common.size),
        ranks=tuple(_times(rank, *place) for rank, *place in places),
        late=numbers[late],
        # All steps end together, so how much longer others waited is by how much the late ones came later.
        late_ms=max(0.0, last.ms),
        late_low_ms=max(0.0, last.low_ms),
        late_high_ms=float(last.lead.clip(min=0).mean()),
        exposed_ms=float(waits.min(axis=0).mean()),
        collectives=_collectives(ranks, late),
        model=_model(ranks),
        beside=tuple(numbers[row] for row in beside),
        turns=_turns([rank for rank, group in zip(ranks, alike, strict=True) if group == alike[late]]),
        stages=max(division.of_stages for division in divisions),
        shard_bytes=divisions[late].shard_bytes,
        resharded=divisions[late].resharded,
        shared_data=_shared_data(ranks) if not any(one.tensor or one.stages for one in divisions) else None,
    )


def _shared_data(ranks: Sequence[_Rank]) -> SharedData | None:
    """By what was asked of the data sets that the steady steps drew from, after the last step."""
    found: list[dict[str, int]] = []
    for rank in ranks:
        steps = rank.process.batches.where(np.isin(rank.process.batches["step"], rank.selection.rows["step"]))
        drawn = set(steps["loader"].tolist())
        found.append({one.held: one.loader for one in rank.process.samples_asked if one.held and one.loader in drawn})
    shared = set(found[0]).intersection(*found[1:])
    loaders = [one for one in ranks[0].process.loaders if one.id in {found[0][held] for held in shared}]
    lengths = [(one.length, one.site) for one in loaders if one.length is not None]
    return SharedData(*max(lengths, key=lambda one: one[0])) if lengths else None


def _alike(processes: Sequence[ProcessRecording]) -> list[int]:
    """A number for each, the same for those that do the same work on other data: ranks of one data-parallel group.

    Stages of a pipeline and the parts of one layer are different work, and so is what the last stage does besides.
    """
    keys = []
    for process in processes:
        divided = process.division or Division()
        keys.append(divided.data or (f"only {process.rank}" if divided.tensor or divided.stages else ""))
    known = list(dict.fromkeys(key for key in keys if key))
    if len(known) < 2:
        return [0] * len(keys)
    numbers = {key: number for number, key in enumerate(known)}
    return [numbers.get(key, len(known)) for key in keys]


def _cpus(process: ProcessRecording, node: str) -> Hashable:
    """The same for ranks that share all of their CPUs; a rank that does not say shares with nobody."""
    cpus = process.settings.cpus if process.settings is not None else ()
    return (node, cpus) if cpus else (process.rank,)


def _last(waits: Floats, alike: Sequence[int], sharing: Sequence[Hashable]) -> Last:
    """Of the ranks that do the same work those that the others wait for most; where no two do, the one that waits
    least, which is late by nothing."""
    groups = [[row for row, group in enumerate(alike) if group == one] for one in sorted(set(alike))]
    found = [lateness.latest(waits, rows, sharing) for rows in groups if len(rows) > 1]
    if not found:
        return Last((int(waits.mean(axis=1).argmin()),), np.zeros(waits.shape[1]))
    return max(found, key=lambda one: one.ms)


def _turns(ranks: Sequence[_Rank]) -> Turns | None:
    if len(ranks) < 2:
        return None

    def own(rank: _Rank) -> Floats:
        return _column(rank, "wall_us") - _column(rank, "communication_us")

    def parts(row: int) -> dict[str, Floats]:
        spent = {name: _column(ranks[row], f"{name}_us") for name in _NAMES if name != "communication"}
        return {**spent, "other": own(ranks[row]) - sum(spent.values())}

    return lateness.turns(np.array([own(rank) for rank in ranks]), [rank.process.rank for rank in ranks], parts)


def _common_steps(ranks: Sequence[_Rank]) -> Ints:
    """Numbers of the steps that are steady on all ranks, and untouched by us unless most are touched: then they are so
    long that what is written in them is short."""
    steps = (rank.selection.column("step") for rank in ranks)
    common = reduce(partial(np.intersect1d, assume_unique=True), steps)
    written = [sample.step for rank in ranks for sample in rank.process.samples]
    touched = [step + after for step in written for after in range(-1, _AFTER)]
    clean = common[~np.isin(common, touched)]
    return np.asarray(clean if 2 * clean.size >= common.size else common, np.int64)


def _column(rank: _Rank, name: str) -> Floats:
    """Milliseconds in the common steps."""
    return np.asarray(rank.selection.rows[name][rank.common] / 1000, np.float64)


def _times(rank: _Rank, node: str, alike: int, late_share: float) -> RankTimes:
    spent = {name: float(_column(rank, f"{name}_us").mean()) for name in _NAMES}
    other = float(_column(rank, "wall_us").mean()) - sum(spent.values())
    delay = rank.selection.per_step("delay_us")
    return RankTimes(
        rank=rank.process.rank,
        parts=Parts(**spent, other=max(0.0, other)),
        cpu_ms=float(_column(rank, "cpu_us").mean()),
        run_delay_ms=Missing("too few counter samples") if delay is None else delay / 1000,
        late_share=late_share,
        samples=steady.samples_per_step(rank.process, rank.selection),
        batch_bytes=_batch_bytes(rank),
        throttled_ms=_throttled_ms(rank),
        clock_mhz=_clock_mhz(rank),
        node=node,
        alike=alike,
    )


def _throttled_ms(rank: _Rank) -> float:
    """Threads that run side by side are stopped side by side."""
    selection = rank.selection
    stopped, user, system = (selection.per_step(name) for name in ("throttled_us", "utime_us", "stime_us"))
    wall_us = float(selection.column("wall_us").mean())
    if stopped is None or user is None or system is None or wall_us <= 0:
        return 0.0
    # Stopped for x, it keeps (user + system) / (wall - x) CPUs busy, and each of them is stopped for x.
    side_by_side = stopped * wall_us / max(1.0, stopped + user + system)
    return min(stopped, side_by_side) / 1000


def _clock_mhz(rank: _Rank) -> float:
    seen = [one.clock_mhz for one in rank.process.samples if one.step >= rank.selection.first and one.clock_mhz]
    return sum(seen) / len(seen) if seen else 0.0


def _batch_bytes(rank: _Rank) -> float | Missing:
    process = rank.process
    steady_steps = np.isin(process.batches["step"], rank.selection.column("step"))
    loaders = set(process.batches["loader"][steady_steps].tolist())
    seen = [one.bytes for one in process.batches_seen if one.loader in loaders and one.bytes]
    return sum(seen) / len(seen) if seen else Missing("no batch of a DataLoader was looked at")


def _model(ranks: Sequence[_Rank]) -> ReducedModel | None:
    return next((model for rank in ranks if (model := rank.process.reduced_model) is not None), None)


def _collectives(ranks: Sequence[_Rank], late: int) -> tuple[Collective, ...]:
    """By what the late rank calls; the others call the same."""
    by_rank = [_lines(rank) for rank in ranks]
    found = []
    for line, (calls, ms) in by_rank[late].items():
        least = min(lines[line][1] for lines in by_rank if line in lines)
        found.append(Collective(*line, calls, ms, least))
    return tuple(sorted(found, key=lambda one: -one.least_ms))


def _lines(rank: _Rank) -> Mapping[_Line, tuple[float, float]]:
    """Calls and milliseconds per step, by kind and line."""
    totals: dict[_Line, list[int]] = defaultdict(lambda: [0, 0])
    for call in rank.process.calls:
        group, _, kind = call.kind.rpartition(".")
        if group == "dist" and call.step > rank.selection.first:
            totals[kind, call.site][0] += call.count
            totals[kind, call.site][1] += call.us
    span = rank.selection.span
    return {line: (count / span, us / 1000 / span) for line, (count, us) in totals.items()}
