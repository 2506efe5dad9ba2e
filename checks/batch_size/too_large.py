"""Products that take less per sample with a quarter of the batch, by more than three more launches cost."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Missing

from .._shared.loader_fixes import batch_size
from .case import Case


def too_large(case: Case) -> Finding | None:
    """By the timings of the job's own products."""
    timings, limits = case.ops.batch_timings, case.limits
    if isinstance(timings, Missing):
        return None
    pieces = timings.smaller
    saved = sum(
        timing.calls_per_step * (timing.milliseconds - pieces * timing.smaller_milliseconds)
        for timing in timings.ops
        if timing.smaller_milliseconds is not None
    )
    low = saved - (pieces - 1) * case.grows.compute_fixed_high_ms
    high = saved - (pieces - 1) * case.grows.compute_fixed_low_ms
    if low < limits.min_share * case.grows.step_ms:
        return None
    memory = case.evidence.memory
    by_kernel = 0.0 if isinstance(memory, Missing) else memory.system_share
    by_allocator = by_kernel >= limits.allocator_share
    return Finding(
        id="PD05.batch-too-large",
        severity=Severity.NOTE if by_allocator else case.severity(low, limits.warning_share),
        confidence=Confidence.LOW,
        message="the batch is too large for the caches: {pieces:smaller one|smaller ones} would save up to "
        "{saved_high} per step",
        reasoning="the matrix products take {products_saved} less per step in quarters of the batch, which stay in the "
        "caches and in memory that the allocator keeps; {kernel_share} of the CPU time is the kernel's",
        evidence=(
            Measurement("pieces", pieces, "count", "forward passes instead of one"),
            milliseconds("saved_low", low, "saved at least"),
            milliseconds("saved_high", high, "saved at most"),
            milliseconds("products_saved", saved, "products alone"),
            share("kernel_share", by_kernel, "of the CPU time in the kernel"),
            *case.figures(),
        ),
        location=location(case.place),
        fix=Fix(
            text="Accumulate gradients over quarters of the batch: the step sees the same samples. If the kernel's "
            "share is large, change the allocator first (PD08).",
            code=batch_size(case.evidence.job, max(1, (case.batch or 1) // pieces), accumulate=pieces),
            risk="Batch normalisation sees smaller batches.",
        ),
        savings=savings(
            case.step,
            low,
            high,
            "the job's own matrix products timed with a quarter of the batch, less three times the launches",
        ),
    )
