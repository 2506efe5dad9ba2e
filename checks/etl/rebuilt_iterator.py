"""A new iterator for each batch."""

from __future__ import annotations

from perfdoctor.api.causes import HANDOVER_MS
from perfdoctor.api.findings import Finding, Fix, Measurement, milliseconds
from perfdoctor.api.quantities import Missing

from .waiting import Case

_REBUILDING = 0.9
"""A judgement: what a first batch finds cold in caches and memory may be cold for the next one too."""


def rebuilt_iterator(case: Case) -> Finding:
    """By the measured start of an iterator."""
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
