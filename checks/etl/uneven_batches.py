"""Workers that keep up on average, and a slow batch now and then that all others queue up behind."""

from __future__ import annotations

from perfdoctor.api.causes import Bursts
from perfdoctor.api.findings import Confidence, Finding, Measurement, milliseconds

from .._shared.loader_fixes import prefetch
from .waiting import Case

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
