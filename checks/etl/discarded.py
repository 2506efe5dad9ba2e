"""Workers that make the samples of the others too, and throw them away."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import MAKING, WITHOUT_CPU, Cause, Fetch

from .crowding import crowding
from .waiting import Case, fetch_measurements

_SAVED = (0.7, 1.0)
"""A judgement, of the time of samples that are thrown away: records are still read to find the own ones, and what that
takes is not told apart from the work on them."""
_BEFORE = 0.5
"""Of making a batch, from which on a share is kept after the work: below, most of it is spent on kept samples alone,
and to read all records to find the own ones is how a stream is divided."""
_SHARED = Fix(
    text="Let each worker take its share of the raw records, and make samples of these only; where reading them takes "
    "long, give each worker files of its own.",
    code="info = get_worker_info()\n"
    "records = itertools.islice(self.records(), info.id, None, info.num_workers)\n"
    "yield from map(transform, records)  # after the share is taken",
    risk="None for the samples, unless making one draws random numbers or depends on the one before.",
)


def discarded_samples(case: Case, fetch: Fetch) -> Finding | None:
    """None where no worker was seen to, or where neither the loop nor a thread of its waits for what that takes."""
    seen, loader, step = fetch.sharded, case.loader, case.step
    if seen is None or seen.share < _BEFORE:
        return None
    least, most = crowding(case)
    # Less of it takes less storage, less of a CPU and less waiting for one.
    blamed = case.split.blamed in (*MAKING, *WITHOUT_CPU, Cause.GC)
    wait, part = case.wait if blamed else 0.0, seen.discarded_share
    making = fetch.total_ms * loader.steady_batches_per_step / max(1, loader.num_workers)
    low = _SAVED[0] * part * (min(wait, case.split.making_ms) + least)
    high = _SAVED[1] * (min(wait, part * making) + part * most)
    saved_share = (low + high) / 2 / step.step_ms
    if saved_share < case.limits.min_share:
        return None
    return Finding(
        id="PD03.discarded-samples",
        severity=severity(saved_share, case.limits.min_share, case.limits.error_share),
        confidence=Confidence.HIGH,
        message=f"each of the {{workers:worker}}{case.of_loader} makes all samples and keeps one in {{shards}}; "
        "the others take {discarded_ms} per batch",
        reasoning="this line keeps one sample in {shards} after they were made, in each worker another one; a batch of "
        "{kept:sample} takes {make_ms} to make, {discarded_share} of it for those that are not kept"
        + "; meanwhile the training thread waits {crowded_ms} per step for a CPU, which the workers have"
        * bool(least),
        evidence=(
            *case.shared(case.wait),
            *case.called(),
            *fetch_measurements(fetch),
            Measurement("shards", seen.shards, "count", "shares that samples are divided into"),
            Measurement("kept", seen.samples, "count", "samples kept, of the batch that was looked at"),
            milliseconds("discarded_ms", part * fetch.total_ms, "making samples that are thrown away, per batch"),
            share("discarded_share", part, "of making a batch, in these"),
            *((milliseconds("crowded_ms", least, "training without a CPU, per step"),) if least else ()),
        ),
        location=location(seen.site),
        about=case.name,
        fix=_SHARED,
        savings=savings(
            step,
            low,
            high,
            "their share of making a batch, as far as the loop waits for that or the workers take its CPUs; 70 % of it "
            "or all comes back",
            part=Part.INPUT_WAIT,
        ),
    )
