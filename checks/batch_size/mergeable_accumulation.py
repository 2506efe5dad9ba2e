"""Micro-batches that memory would allow to merge: the same optimisation for fewer launches."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, milliseconds, savings

from .._shared.loader_fixes import batch_size
from .case import Case


def mergeable_accumulation(case: Case) -> Finding | None:
    """By the fixed overhead of forward and backward, which every micro-batch pays."""
    merged, limits, batch = case.micro_batches, case.limits, case.batch or 1
    if merged < 2 or not case.has_room(merged):
        return None
    low = case.grows.compute_fixed_low_ms * (1 - 1 / merged)
    high = case.grows.compute_fixed_high_ms * (1 - 1 / merged)
    if low < limits.min_share * case.grows.step_ms:
        return None
    at = case.backward_line.site if case.backward_line and not case.loader else case.place
    return Finding(
        id="PD05.mergeable-accumulation",
        severity=Severity.NOTE if case.usual else case.severity(low, limits.merge_warning_share),
        confidence=Confidence.MEDIUM,
        message="merging {micro_batches:micro-batch} of {batch} into one would save up to {saved_high} per step",
        reasoning="{launched} of forward and backward is fixed overhead, independent of the batch size, which every "
        "micro-batch pays again; memory would hold the whole batch",
        evidence=(
            Measurement("micro_batches", merged, "count", "micro-batches per step"),
            milliseconds("saved_low", low, "saved at least"),
            milliseconds("saved_high", high, "saved at most"),
            milliseconds("launched", case.grows.compute_fixed_low_ms, "fixed overhead in forward and backward"),
            *case.figures(),
        ),
        location=location(at),
        fix=Fix(
            text="Accumulate over fewer, larger micro-batches: the step sees the same samples.",
            code=batch_size(case.evidence.job, batch * merged, accumulate=1)
            if case.loader
            else f"batch_size = {batch * merged}  # and optimizer.step() after each",
            risk="Batch normalisation sees larger batches; memory for activations grows with the micro-batch.",
        ),
        savings=savings(
            case.step,
            low,
            high,
            "matrix products timed at two sizes, and up to 10 us for each other operator, paid once instead of per "
            "micro-batch",
        ),
    )
