"""Workers that are started anew for every epoch, and a loader's iterator that is made too often."""

from __future__ import annotations

from perfdoctor.api.causes import HANDOVER_MS, restart
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import Job, Loader, Missing, Step

from .._shared.loader_fixes import persistent_workers
from .waiting import Case, Limits

_RESTART_SAVED = (0.7, 0.98)
"""Of what starting workers anew costs; a first batch from warm ones remains. A program of 1.3x won back all of it."""


def restarted_workers(job: Job, loader: Loader, step: Step, limits: Limits) -> Finding | None:
    """None where nothing restarts them, or it costs little. Their start is rarely in the steady step: a part alone."""
    start = restart(loader, step)
    if start is None or start.cost_ms / step.step_ms < limits.min_share:
        return None
    cost = Cost(step, start.cost_ms)
    # Where epochs are so short that their starts are part of the usual step, the wait holds them.
    part, ceiling = (Part.INPUT_WAIT, start.in_wait_ms) if start.is_regular else (Part.EPOCH, cost.ms)
    return Finding(
        id="PD03.workers-restarted",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="each epoch restarts its {workers:worker}, which costs {cost_ms} per step ({cost_share})",
        reasoning="an epoch's first batch waits until the workers run and have made it: {anew_ms} for "
        "{batches:batch}; the start method is {start_method}, and nothing keeps the workers from one epoch to the next",
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            milliseconds("anew_ms", loader.iterator_ms, "starting workers, getting the first batch, and ending them"),
            milliseconds("end_ms", loader.iterator_end_ms, "of which ending them"),
            Measurement("batches", loader.batches_per_iterator, "count", "batches per epoch"),
            *cost.measured("that per step", "on top of the steady step" if part is Part.EPOCH else "of the step"),
            Measurement("start_method", loader.start_method or "fork", "text", "start method"),
        ),
        location=location(loader.site),
        fix=persistent_workers(job, loader.made),
        savings=savings(
            step,
            _RESTART_SAVED[0] * ceiling,
            _RESTART_SAVED[1] * ceiling,
            "the measured start of an epoch, of which a warm worker's first batch remains, and its workers' end",
            ceiling=ceiling,
            part=part,
        ),
    )


_REBUILDING = 0.9
"""A judgement: what a first batch finds cold in caches and memory may be cold for the next one too."""


def rebuilt_iterator(case: Case) -> Finding:
    """A new one for each batch, by the measured start of an iterator."""
    loader = case.loader
    per_step = loader.iterator_ms * loader.steady_batches_per_step
    ceiling = min(case.wait, per_step) or case.wait
    stays = HANDOVER_MS[0] * loader.steady_batches_per_step
    if not loader.num_workers and not isinstance(loader.fetch, Missing):
        stays = loader.fetch.total_ms * loader.steady_batches_per_step
    saved = max(0.0, ceiling - stays)
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
        high=saved,
        extra=(
            Measurement("iterators", loader.iterators, "count", "iterators"),
            Measurement("batches_per_iterator", loader.batches_per_iterator, "count", "batches per iterator"),
            milliseconds("iterator_start_ms", loader.iterator_start_ms, "iterator and its first batch"),
            milliseconds("iterator_end_ms", loader.iterator_end_ms, "ending its workers"),
        ),
        at=loader.iterated_at,
    )
