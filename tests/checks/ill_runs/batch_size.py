"""Runs with batches of the wrong size."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import BatchTiming, BatchTimings, Evidence, InParts, Op, PassWays, Site

PART_LINE = Site("model.py", 12, "forward")


def batch_timings(growing: float = 0.1, quarter: float | None = None) -> BatchTimings:
    """Products of 20 ms a step, of which that share grows with the batch; and what a quarter of it takes of that."""
    larger = 2.5 * (1 + 3 * growing)
    smaller = None if quarter is None else 2.5 * quarter
    timing = BatchTiming("addmm", "[512] [32, 512] [512, 512]", 8.0, 2.5, 4, larger, smaller)
    return BatchTimings((timing,), 4, 100.0, 0.002)


def small_batch(growing: float = 0.1, batch: float = 4.0, **changes: Any) -> Evidence:
    """A step of 25 ms, 20 of them in products; those grow by that share of themselves with each batch more."""
    return with_(
        healthy(),
        **{
            "ops__batch_timings": batch_timings(growing),
            "ops__ops": (Op("addmm", "float32", "[512] [32, 512] [512, 512]", 8.0, 20.0, 20.0, 4e8),),
            "step__samples": batch,
            "loader__batch_size": int(batch),
            **changes,
        },
    )


def padded(cut_ms: float = 20.0, length: int = 256, needed: int = 90) -> Evidence:
    """Passes that take 30 ms when made again, and so much on sequences without padding."""
    times = (("without padding", cut_ms),) if length else ()
    return with_(healthy(), ops__ways=PassWays(30.0, times, length, needed))


def mixed(mean_ms: float = 18.0, cut_ms: float | None = None) -> Evidence:
    """Passes that take 30 ms when made again, and so much on sequences of the mean length."""
    times = (("of like length", mean_ms), *((("without padding", cut_ms),) if cut_ms is not None else ()))
    return with_(healthy(), ops__ways=PassWays(30.0, times, batch_length=180, mean_length=60))


def in_parts(together_ms: float = 2.0, milliseconds: float = 16.0) -> Evidence:
    """An encoder that is called 16 times per step; one part takes 1 ms when called again, four at once so much, and
    two what one and three do in the middle."""
    times = ((1, 1.0), (2, 1.0 + (together_ms - 1.0) / 3), (4, together_ms))
    seen = InParts("encoder", "Encoder", PART_LINE, "for t in range(T)", 16.0, milliseconds, 8, times)
    return with_(healthy(), ops__in_parts=(seen,))
