"""Workers that cannot keep up: too few, held up by slow batches or collections, or started anew too often."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import HANDOVER_MS, Bursts, Overlap, one_thread_takes, restart
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import Cause, Fetch, Missing

from .._shared.lines import decided, told_trainer
from .._shared.loader_fixes import persistent_workers, prefetch, workers
from .cheaper import CHEAPER
from .making import doing, picks_samples_singly, told
from .waiting import Case, fetch_measurements

WORTH = 0.5
"""Of the wait: what a setting must win back to be worth its own cost."""


@dataclass(frozen=True, slots=True)
class MoreWorkers:
    """What more workers would give, by the model of overlap; milliseconds per step."""

    count: int
    low_ms: float
    high_ms: float
    one_thread: bool = False
    """Beside training on one thread: it has several now, and the workers would take their CPUs."""


def more_workers(case: Case, model: Overlap) -> MoreWorkers | None:
    """None where they would not win back half of the wait, between best and worst case, or not be sure to help beside
    fewer threads: their cost is not worth it."""
    wanted = model.workers()
    low, high = model.saved_with(wanted)
    enough = 2 * WORTH * case.split.blamed_ms
    if wanted > case.loader.num_workers and low + high >= enough:
        return MoreWorkers(wanted, low, high)
    times = one_thread_takes(case.evidence)
    if isinstance(times, Missing) or not model.is_crowded(wanted):
        return None
    # Operators that were not timed take no longer than now at best.
    best, worst = (model.with_one_thread(factor) for factor in ((1 + times) / 2, times))
    wanted = best.workers()
    low, high = worst.saved_with(wanted)[0], best.saved_with(wanted)[1]
    # Both: what is sure of them alone is little, and a program at that threshold was told of workers in one launch of
    # four and of its transform, which is worth more, in the others.
    if wanted <= case.loader.num_workers or low < case.limits.min_share * case.step.step_ms or low + high < enough:
        return None
    return MoreWorkers(wanted, low, high, one_thread=True)


def too_few_workers(case: Case, fetch: Fetch, model: Overlap, more: MoreWorkers) -> Finding:
    """By the model of overlap."""
    where, line = told(fetch)
    rest = "training and waiting for other loaders take" if case.name else "training takes"
    singly = picks_samples_singly(case, fetch)
    otherwise = (
        "pick the whole batch with one index, which needs no worker"
        if singly
        else f"make the batch cheaper: {CHEAPER[case.split.blamed][0]}"
    )
    return case.finding(
        "too-few-workers",
        "its {workers:worker} cannot keep up" if case.loader.num_workers else "batches are made between the steps",
        f"a batch takes {{make_ms}} to make, mostly {doing(case)}, while {rest} {{train_ms}}; "
        f"{{wanted:worker}} would make batches during training{', if that left them a CPU' * more.one_thread}{where}",
        workers(case.evidence.job, more.count, otherwise, one_thread=more.one_thread),
        "overlap model: the step cannot be shorter than training, than making a batch shared among the workers, or "
        "than their CPU time on the usable CPUs; plus 0.3 to 2 ms for handing a batch over"
        + "; training on one thread by its operators, timed so"
        * more.one_thread,
        low=more.low_ms,
        high=more.high_ms,
        lanes=more.count,
        extra=(
            *fetch_measurements(fetch),
            milliseconds("train_ms", model.train_ms, "the rest of the step"),
            Measurement("wanted", more.count, "count", "workers that would keep up"),
            *line,
        ),
        at=decided(case.loader.workers_at, case.loader.site),
    )


_REPEATS = 0.5
"""Of the saving that the played queue shows: slow batches may come closer together than they did."""


def uneven_batches(case: Case, uneven: Bursts) -> Finding:
    """By the loader's queue, played through."""
    part = 1 - uneven.ahead_ms / uneven.now_ms
    return case.finding(
        "uneven-batches",
        "one slow batch in 20 holds up the others",
        "its {workers:worker} keep up on average, and most batches take about {typical_ms}, but one in 20 takes "
        "{slow_ms} and more, and the loop takes batches in order; with {prefetch:batch} ahead for each worker the wait "
        "would be {ahead_ms}",
        prefetch(case.evidence.job, uneven.factor),
        "the loader's queue played through with the times that its batches took, with {now:batch} ahead for each "
        "worker and with {prefetch}",
        low=_REPEATS * part * case.wait,
        high=part * case.wait,
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


_WITHOUT_CALL = (0.85, 1.0)
"""Of collections that a line asks for: up to 15 % come back, as Python's own."""
_CALMER = (0.5, 0.95)
"""Of collections that Python starts, saved by thresholds of 50,000."""


def worker_collections(case: Case, fetch: Fetch) -> Finding:
    """Neither more workers nor a cheaper data set."""
    loader, asked = case.loader, fetch.gc_line is not None
    spared = min(case.wait, fetch.gc_ms * loader.steady_batches_per_step / max(1, loader.num_workers))
    least, most = _WITHOUT_CALL if asked else _CALMER
    return case.finding(
        "worker-collections",
        "garbage collections take {gc_ms} of each batch",
        "a line that runs in the workers calls `gc.collect()`, which walks every object that Python tracks; tensors "
        "do not need it"
        if asked
        else "making a batch takes {make_ms}; the data set makes so many containers (lists, dicts, objects) that "
        "Python keeps looking for cycles, and walks all that the worker inherited from the training process",
        Fix(
            text="Take the call out of the data set and `collate_fn`."
            if asked
            else "Freeze what the workers inherit, and raise their collector's thresholds.",
            code="def collate(samples):\n    return torch.stack(samples)  # without gc.collect()"
            if asked
            else "def calm(worker_id):\n    gc.freeze()\n    gc.set_threshold(50_000, 50, 100)\n\n"
            "loader = DataLoader(dataset, ..., worker_init_fn=calm)",
            risk="Reference cycles in the workers, and the memory they hold, live longer.",
        ),
        "the measured pauses, shared among the workers"
        + ("; at most 15 % remain as automatic collections" if asked else "; thresholds of 50,000 save half or more"),
        low=least * min(spared, case.part(Cause.GC)),
        high=most * spared,
        extra=(*fetch_measurements(fetch), milliseconds("gc_ms", fetch.gc_ms, "collections while a batch is made")),
        at=fetch.gc_line,
    )


_RESTART_SAVED = (0.7, 0.98)
"""Of what starting workers anew costs; a first batch from warm ones remains. A program of 1.3x won back all of it."""


def restarted_workers(case: Case) -> Finding | None:
    """None where nothing restarts them, or it costs little. Their start is rarely in the steady step: a part alone."""
    job, loader, step, limits = case.evidence.job, case.loader, case.step, case.limits
    start = restart(loader, step)
    if start is None or start.cost_ms / step.step_ms < limits.min_share:
        return None
    cost = Cost(step, start.cost_ms)
    # Where epochs are so short that their starts are part of the usual step, the wait holds them.
    part, ceiling = (Part.INPUT_WAIT, start.in_wait_ms) if start.is_regular else (Part.EPOCH, start.most_ms)
    return Finding(
        id="PD03.workers-restarted",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=("each epoch restarts " + ("the {workers:worker} of {loader}" if case.name else "its {workers:worker}"))
        + ", which costs {cost_ms} per step ({cost_share})",
        reasoning="an epoch's first batch waits until the workers run and have made it: {anew_ms} for "
        "{batches:batch}; the start method is {start_method}, and nothing keeps the workers from one epoch to the next"
        + (
            "; while they start they take CPUs from the step, and pages that it writes to are copied"
            * start.slows_training
        ),
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            milliseconds("anew_ms", loader.iterator_ms, "starting workers, getting the first batch, and ending them"),
            milliseconds("end_ms", loader.iterator_end_ms, "of which ending them"),
            Measurement("batches", loader.batches_per_iterator, "count", "batches per epoch"),
            *cost.measured("that per step", "on top of the steady step" if part is Part.EPOCH else "of the step"),
            Measurement("start_method", loader.start_method or "fork", "text", "start method"),
            *case.called(),
        ),
        location=location(
            decided(
                loader.persistent_at,
                # Where one would say that they stay.
                decided(
                    loader.workers_passed_at,
                    told_trainer(job, loader.site, "dataloader_persistent_workers", "dataloader_num_workers"),
                ),
            )
        ),
        about=case.name,
        fix=persistent_workers(job, loader.made),
        savings=savings(
            step,
            _RESTART_SAVED[0] * min(ceiling, cost.ms),
            _RESTART_SAVED[1] * ceiling,
            "by how much steps take longer that start an epoch, of which a warm worker's first batch remains",
            ceiling=ceiling,
            part=part,
        ),
    )


_REBUILDING = 0.9
"""A judgement: what a first batch finds cold in caches and memory may be cold for the next one too."""
_FREEING = 0.9
"""Of what building an iterator takes, at most, comes on top where it is built in the loop's own process: the shuffled
list of all numbers is freed after the batch, outside the wait, and has pushed the step's data out of the caches. 0.7 to
0.9 in two programs with 200,000 and 500,000 samples, where it was 35 and 40 % of the rest of the step."""
_OF_THE_REST = 0.5
"""Of the rest of the step, at most."""


def rebuilt_iterator(case: Case) -> Finding:
    """A new one for each batch, by the measured start of an iterator."""
    loader = case.loader
    per_step = loader.iterator_ms * loader.steady_batches_per_step
    ceiling = min(case.wait, per_step) or case.wait
    stays = HANDOVER_MS[0] * loader.steady_batches_per_step
    if not loader.num_workers and not isinstance(loader.fetch, Missing):
        stays = loader.fetch.total_ms * loader.steady_batches_per_step
    saved = max(0.0, ceiling - stays)
    freeing = 0.0 if loader.num_workers else min(_FREEING * saved, _OF_THE_REST * (case.step.step_ms - saved))
    return case.finding(
        "iterator-rebuilt",
        "each batch builds a new iterator",
        "{iterators:iterator} delivered {batches_per_iterator:batch} each; every one shuffles the whole data set "
        "and starts workers, if there are any",
        Fix(
            text="Build the iterator once and draw from it; start again when it is exhausted.",
            code="batches = iter(loader)\nfor step in range(steps):\n    try:\n        batch = next(batches)\n"
            "    except StopIteration:\n        batches = iter(loader)\n        batch = next(batches)",
            risk="Each epoch then sees every sample once, which `next(iter(loader))` did not guarantee.",
        ),
        "the measured time of building an iterator, getting its first batch and ending its workers, less making that "
        "batch; what freeing an old iterator without workers takes comes on top",
        low=_REBUILDING * saved,
        high=saved + freeing,
        ceiling=case.wait + freeing,
        extra=(
            Measurement("iterators", loader.iterators, "count", "iterators"),
            Measurement("batches_per_iterator", loader.batches_per_iterator, "count", "batches per iterator"),
            milliseconds("iterator_start_ms", loader.iterator_start_ms, "iterator and its first batch"),
            milliseconds("iterator_end_ms", loader.iterator_end_ms, "ending its workers"),
        ),
        at=loader.iterated_at,
    )
