"""Batches that come late though quickly made: handed over, queued behind a slow one, or from a new iterator."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.api.causes import HANDOVER_MS, Bursts, Overlap
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, milliseconds, share
from perfdoctor.api.quantities import Fetch, Missing

from .._shared.loader_fixes import fewer_workers, prefetch
from .waiting import Case, fetch_measurements

_COLLATE_IN_PROCESS = 0.3
"""Of what `collate_fn` takes in a worker, where it puts the batch into shared memory: 0.15 against 0.5 ms, measured."""
_FEW_TENSORS = 1000.0
"""Bytes through the pipe: the handle of a tensor takes about 200, so these are four at most."""
_REBUILDING = 0.9
"""A judgement: what a first batch finds cold in caches and memory may be cold for the next one too."""
_REPEATS = 0.5
"""Of the saving that the played queue shows: slow batches may come closer together than they did."""


def handover(case: Case, fetch: Fetch, model: Overlap) -> Finding | None:
    """Batches that were ready; None for what any hand-over takes."""
    loader = case.loader
    extra = (
        *fetch_measurements(fetch),
        milliseconds("transport_ms", loader.transport_ms, "unpickling one batch"),
        Measurement("transport_bytes", loader.transport_bytes, "bytes", "through the pipe per batch"),
        share(
            "empty",
            0.0 if isinstance(loader.empty_share, Missing) else loader.empty_share,
            "arrivals at an empty queue",
        ),
    )
    made_here = (fetch.total_ms - fetch.run_delay_ms) * loader.steady_batches_per_step
    collate = min(fetch.collate_cpu_ms * loader.steady_batches_per_step, made_here)
    if made_here < min(case.wait, model.handover_ms[1]):
        # Making the batch costs less than receiving it ever could: the textbook's workers are the problem.
        return case.finding(
            "needless-workers",
            "the loop waits {wait_ms} a step for data, {wait_share} of it, to receive batches that take only "
            "{make_ms} to make",
            "batches were ready when asked for, so the time goes into handing them from process to process",
            fewer_workers(case.evidence.job),
            low=case.wait - made_here,
            high=case.wait - made_here + collate * (1 - _COLLATE_IN_PROCESS),
            method="the wait, less what making the batch in the training process takes: no more than in a worker, and "
            "as little as 30 % of its `collate_fn`, which there also makes shared memory",
            extra=extra,
        )
    if case.wait <= HANDOVER_MS[1] * max(1.0, loader.steady_batches_per_step):
        return None
    # With few tensors, there is nothing that `collate_fn` could save: a note, with what may help.
    few = loader.transport_bytes < _FEW_TENSORS
    finding = case.finding(
        "transport",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, although batches are ready: handing them over "
        "is what takes time",
        "{transport_bytes} go through a pipe for each batch and unpickling takes {transport_ms}; only tensors travel "
        "through shared memory, and each of them costs about 0.4 ms"
        + (", or more while the worker that must answer is making its next batch" if few else ""),
        _shared_by_name() if few else _stacked(),
        low=0.0 if few else 0.5 * max(0.0, case.wait - model.handover_ms[1]),
        high=max(0.0, case.wait - model.handover_ms[0]),
        method="the wait, less the 0.3 to 2 ms that handing over one tensor takes"
        + ("; whether this helps depends on what the workers do meanwhile" if few else ""),
        extra=extra,
    )
    return replace(finding, severity=Severity.NOTE, confidence=Confidence.LOW) if few else finding


def _stacked() -> Fix:
    return Fix(
        text="Return few, large tensors from `collate_fn`: stack lists of tensors, and turn NumPy "
        "arrays into tensors, which go through shared memory instead of the pipe.",
        code="def collate(samples):\n    return torch.stack(samples)  # one tensor, not a list",
        risk="Samples of different shapes must be padded first.",
    )


def _shared_by_name() -> Fix:
    return Fix(
        text="Try fewer workers if CPUs are few, or share memory by name, so that no worker has to answer.",
        code='torch.multiprocessing.set_sharing_strategy("file_system")  # before the loader is made',
        risk="Shared memory of a job that is killed stays until somebody removes it from /dev/shm.",
    )


def uneven_batches(case: Case, uneven: Bursts) -> Finding:
    """Workers that keep up on average, and a slow batch now and then that all others queue up behind."""
    part = 1 - uneven.ahead_ms / uneven.now_ms
    return case.finding(
        "uneven-batches",
        "the loop waits {wait_ms} a step for data, {wait_share} of it: its {workers:worker} keep up on average, but "
        "one batch in 20 takes {slow_ms} and more, while most take about {typical_ms}",
        "the loop takes batches in order, so it waits for a slow one although later ones are ready; with "
        "{prefetch:batch} ahead for each worker the wait would be {ahead_ms}",
        prefetch(case.evidence.job, uneven.factor),
        low=_REPEATS * part * case.wait,
        high=part * case.wait,
        method="the loader's queue played through with the times that its batches took, with {now:batch} ahead for "
        "each worker and with {prefetch}",
        extra=(
            milliseconds("slow_ms", uneven.slow_ms, "making a batch, 95th percentile"),
            milliseconds("typical_ms", uneven.typical_ms, "making a batch, median"),
            milliseconds("now_ms", uneven.now_ms, "wait per step, played through as it is"),
            milliseconds("ahead_ms", uneven.ahead_ms, "wait per step, played through with more ahead"),
            Measurement("now", case.loader.prefetch_factor or 2, "count", "batches ahead for each worker"),
            Measurement("prefetch", uneven.factor, "count", "batches ahead that would do"),
        ),
        confidence=Confidence.MEDIUM,
    )


def rebuilt_iterator(case: Case) -> Finding:
    loader = case.loader
    per_step = loader.iterator_ms * loader.steady_batches_per_step
    ceiling = min(case.wait, per_step) or case.wait
    stays = HANDOVER_MS[0] * loader.steady_batches_per_step
    if not loader.num_workers and not isinstance(loader.fetch, Missing):
        stays = loader.fetch.total_ms * loader.steady_batches_per_step
    saved = max(0.0, ceiling - stays)
    finding = case.finding(
        "iterator-rebuilt",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, because it builds a new iterator for each batch",
        "{iterators:iterator} delivered {batches_per_iterator:batch} each; every one shuffles the whole data set "
        "and starts workers, if there are any",
        Fix(
            text="Build the iterator once and draw from it; start again when it is exhausted.",
            code="batches = iter(loader)\nfor step in range(steps):\n    try:\n        batch = next(batches)\n"
            "    except StopIteration:\n        batches = iter(loader)\n        batch = next(batches)",
            risk="Each epoch then sees every sample once, which `next(iter(loader))` did not guarantee.",
        ),
        low=_REBUILDING * saved,
        high=saved,
        method="the measured time of building an iterator, getting its first batch and ending its workers, less making "
        "that batch; what freeing an old iterator without workers takes comes on top",
        extra=(
            Measurement("iterators", loader.iterators, "count", "iterators"),
            Measurement("batches_per_iterator", loader.batches_per_iterator, "count", "batches per iterator"),
            milliseconds("iterator_start_ms", loader.iterator_start_ms, "iterator and its first batch"),
            milliseconds("iterator_end_ms", loader.iterator_end_ms, "ending its workers"),
        ),
    )
    return replace(finding, location=location(loader.iterated_at))
