"""Loaders: what waiting for them cost, and what making a batch took, wherever that was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest

import numpy as np

from ..recording.loading import LoaderMade, WorkerSample
from ..recording.model import Columns, ProcessRecording
from .lines import late_sharding, making, making_here, same_making, same_making_here
from .model import NO_LINE, NOT_ASKED, Fetch, Loader, Missing, Site, WorkerThreads
from .same_loaders import alike, given_to, made_for, started_by
from .stats import trimmed_mean
from .steady import ALONE, Mask, Selection

_EACH = 1024
"""Single batches kept, the latest: many epochs of a short loader, or a minute of a fast one."""
_TURNS = 256
"""Steps that tell in what order pauses come."""
_FIRST_FETCHES = 2
"""Batches of each worker that are left out: imports, page faults, cold caches."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the steady steps drew from: loaders that count as one."""

    alike: Sequence[LoaderMade]
    ids: tuple[int, ...]
    mine: Mask
    """Over all batches: theirs."""
    chosen: Mask
    """Those of the steady steps, without the first ones of iterators."""
    waited_us: float
    """For all of these."""


def build(process: ProcessRecording, workers: Sequence[ProcessRecording], selection: Selection) -> tuple[Loader, ...]:
    """The loaders that the steady steps drew from, the one waited for longest first."""
    steady = np.isin(process.batches["step"], selection.column("step"))
    drawn = [_drawn(process, group, steady) for group in alike(process, selection)]
    waited_us = sum(one.waited_us for one in drawn)
    loaders = []
    for one in drawn:
        mine_workers = started_by(process, workers, one.ids) if one.alike[0].num_workers else ()
        times = waited_us / one.waited_us if len(drawn) > 1 and one.waited_us > 0 else 1.0
        loaders.append(_loader(one, process, mine_workers, times, selection))
    return tuple(sorted(loaders, key=lambda loader: -loader.wait_ms * loader.steady_batches_per_step))


def _drawn(process: ProcessRecording, group: Sequence[LoaderMade], steady: Mask) -> _Drawn:
    batches, ids = process.batches, tuple(made.id for made in group)
    mine = np.isin(batches["loader"], ids)
    chosen, first = mine & steady, batches["first"] == 1
    # The first batch of an iterator is told apart, unless every batch is one (an iterator per step).
    if (chosen & ~first).sum() >= chosen.sum() / 2:
        chosen &= ~first
    return _Drawn(group, ids, mine, chosen, float(batches["wait_us"][chosen].sum()))


def _loader(
    drawn: _Drawn, process: ProcessRecording, workers: Sequence[ProcessRecording], times: float, selection: Selection
) -> Loader:
    """`times`: the wait for all loaders over that for this one."""
    made, ids, mine, chosen = drawn.alike[0], drawn.ids, drawn.mine, drawn.chosen
    batches = process.batches
    first = batches["first"] == 1
    waits = batches["wait_us"][chosen] / 1000
    depth = batches["depth"][chosen]
    known = depth[depth >= 0]
    iterators = [iterator for iterator in process.iterators if iterator.loader in ids]
    ends = [ended.us / 1000 for ended in process.iterators_ended if ended.loader in ids]
    first_waits = batches["wait_us"][mine & first] / 1000
    batches_per_step = float(chosen.sum()) / selection.count
    sizes = [seen.bytes for seen in process.batches_seen if seen.loader in ids]
    given = given_to(process, ids)
    return Loader(
        **{f.name: getattr(made, f.name) for f in fields(made)},
        batches=int(chosen.sum()),
        wait_ms=float(waits.mean()) if waits.size else 0.0,
        wait_p95_ms=float(np.percentile(waits, 95)) if waits.size else 0.0,
        empty_share=float((known == 0).mean())
        if known.size
        else Missing("no queue: batches are made in the training process"),
        transport_ms=float((batches["transport_us"][chosen] / 1000).mean()) if chosen.any() else 0.0,
        transport_bytes=float(batches["transport_bytes"][chosen].mean()) if chosen.any() else 0.0,
        iterators=len(iterators),
        iterated_at=iterators[-1].site if iterators else NO_LINE,
        iterator_start_ms=_iterator_start_ms([it.us / 1000 for it in iterators], list(first_waits)),
        batches_per_iterator=float(mine.sum()) / max(1, len(iterators)),
        fetch=_fetch(drawn, process, workers, times, max(sizes, default=0), batches_per_step, selection),
        worker_threads=_worker_threads(workers),
        steady_batches_per_step=batches_per_step,
        made=len(ids),
        iterator_end_ms=float(np.mean(ends)) if ends else 0.0,
        first_step_ms=_first_step_ms([iterator.step for iterator in iterators], selection),
        steps_ms=_turns(selection),
        again=next((asked for asked in process.samples_asked if asked.loader in ids), NOT_ASKED),
        ids=ids,
        batch_at=given.batch_size,
        workers_at=given.num_workers,
        persistent_at=given.persistent_workers,
        workers_passed_at=given.workers_passed,
    )


def _turns(selection: Selection) -> tuple[tuple[float, float], ...]:
    """See `Loader.steps_ms`: one by one, in a cycle too."""
    ms = {name: selection.column(f"{name}_us")[-_TURNS:] / 1000 for name in ("wall", "input_wait", *ALONE)}
    alone = np.sum([ms[name] for name in ALONE], axis=0)
    computing = (ms["wall"] - ms["input_wait"] - alone).clip(min=0)
    return tuple(zip(computing.tolist(), alone.tolist(), strict=True))


_TRAINING_ALONE = ("input_wait_us", "backward_us", "optimizer_us")


def _first_step_ms(starts: Sequence[int], selection: Selection) -> tuple[float, float]:
    """Means over the irregular steps in which an iterator starts; nothing where these are a part of the steady ones."""
    first = selection.irregular & np.isin(selection.rows["step"], starts)
    if not first.any():
        return 0.0, 0.0
    excess = {
        name: max(0.0, float(selection.rows[name][first].mean() - selection.rows[name][selection.mask].mean())) / 1000
        for name in (*_TRAINING_ALONE, "forward_us")
    }
    training = sum(excess[name] for name in _TRAINING_ALONE)
    return training, training + excess["forward_us"]


def _iterator_start_ms(creation: list[float], first_waits: list[float]) -> float:
    """Mean over the iterators after the first one, which also pays for imports; over all if it is alone."""
    totals = [made + waited for made, waited in zip(creation, first_waits, strict=False)]
    later = totals[1:] or totals
    return float(np.mean(later)) if later else 0.0


def _fetch(
    drawn: _Drawn,
    process: ProcessRecording,
    workers: Sequence[ProcessRecording],
    times: float,
    batch_bytes: int,
    batches_per_step: float,
    selection: Selection,
) -> Fetch | Missing:
    num_workers = drawn.alike[0].num_workers
    makers = workers if num_workers else (process,)
    columns = [_settled(made_for(maker.fetches, drawn.ids)) for maker in makers]
    rows = {name: np.concatenate([c[name] for c in columns]) if columns else np.empty(0) for name in (*_TIMES, "gc_us")}
    count = int(rows["getitem_us"].size)
    if count == 0:
        return Missing(
            "no batch was timed where it is made"
            + (f" (workers seen: {len(workers)} of {num_workers})" if num_workers else ""),
            "",
        )
    means = {name: trimmed_mean(rows[name] / 1000) for name in _TIMES}
    if num_workers:
        delay, read = _worker_counters([worker.worker_samples for worker in workers])
    else:
        delay, read = _own_counters(selection, means["getitem_us"] + means["collate_us"])
        read *= _part_of_making(process.fetches, drawn.ids)
    return Fetch(
        batches=count,
        getitem_ms=means["getitem_us"],
        getitem_cpu_ms=means["getitem_cpu_us"],
        collate_ms=means["collate_us"],
        collate_cpu_ms=means["collate_cpu_us"],
        run_delay_ms=delay,
        read_bytes=read,
        batch_bytes=batch_bytes or Missing("the batches hold no tensors"),
        # A full collection is rare and long: a trimmed mean would leave it out.
        gc_ms=float((rows["gc_us"] / 1000).mean()) if num_workers else 0.0,
        gc_line=_collecting_line(workers) if num_workers else None,
        each_ms=_in_order(columns, max(1, num_workers)),
        lines=making(workers) if num_workers else making_here(process, drawn.ids, times),
        same=same_making(workers) if num_workers else same_making_here(process, drawn.ids, batches_per_step),
        sharded=late_sharding(workers) if num_workers else None,
    )


def _in_order(makers: Sequence[Columns], num_workers: int) -> tuple[float, ...]:
    """What single batches took, ms: workers that run side by side are given batches in turn."""
    each: list[float] = []
    for start in range(0, len(makers), num_workers):
        series = [(c["getitem_us"] + c["collate_us"] + c["gc_us"]) / 1000 for c in makers[start : start + num_workers]]
        for turn in zip_longest(*(one.tolist() for one in series)):
            each += [ms for ms in turn if ms is not None]
    return tuple(each[-_EACH:])


def _collecting_line(workers: Sequence[ProcessRecording]) -> Site | None:
    """Where the workers' collections are asked for, if more of their time is asked for than not."""
    asked: Counter[Site] = Counter()
    for worker in workers:
        for event in worker.full_collections:
            if event.site is not None:
                asked[event.site] += event.us
    every = sum(int(worker.fetches["gc_us"].sum()) for worker in workers)
    if not asked or 2 * sum(asked.values()) < every:
        return None
    return asked.most_common(1)[0][0]


_TIMES = ("getitem_us", "getitem_cpu_us", "collate_us", "collate_cpu_us")


def _settled(fetches: Columns) -> Columns:
    skip = _FIRST_FETCHES if len(fetches) > 2 * _FIRST_FETCHES else 0
    return fetches.where(slice(skip, None))


def _worker_counters(series: Sequence[tuple[WorkerSample, ...]]) -> tuple[float, float]:
    """Run delay (ms) and bytes read, per batch, over all workers."""
    delay = read = 0.0
    batches = 0
    for samples in series:
        if len(samples) < 2 or samples[-1].fetched == samples[0].fetched:
            continue
        first, last = samples[0], samples[-1]
        batches += last.fetched - first.fetched
        delay += ((last.delay_us or 0) - (first.delay_us or 0)) / 1000
        read += last.rchar - first.rchar
    return (delay / batches, read / batches) if batches else (0.0, 0.0)


def _own_counters(selection: Selection, fetch_ms: float) -> tuple[float, float]:
    """The same where the training thread makes the batches: its run delay, by the share that loading takes."""
    step_ms = float(selection.column("wall_us").mean()) / 1000
    delay = (selection.per_step("delay_us") or 0.0) / 1000
    share = min(1.0, fetch_ms / step_ms) if step_ms > 0 else 0.0
    return delay * share, selection.per_step("rchar") or 0.0


def _part_of_making(fetches: Columns, ids: Sequence[int]) -> float:
    """Of the time in which this process makes batches, that for these loaders: every eighth batch of all is timed."""
    mine, whole = (int(rows["getitem_us"].sum()) for rows in (made_for(fetches, ids), fetches))
    return mine / whole if whole else 1.0


def _worker_threads(workers: Sequence[ProcessRecording]) -> WorkerThreads | Missing:
    last = [worker.worker_samples[-1] for worker in workers if worker.worker_samples]
    if not last:
        return Missing("no worker was seen")
    return WorkerThreads(
        intra_op=max(sample.intra_op for sample in last),
        affinity_cpus=min(len(sample.affinity) for sample in last),
        distinct_affinities=len({sample.affinity for sample in last}),
    )
