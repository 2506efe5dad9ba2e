"""A batch that is too small, micro-batches that could be one, and a batch too large for the caches."""

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

from .._shared.lines import backward_line
from .._shared.loader_fixes import batch_size
from .case import Case


def _code(case: Case, count: int, accumulate: int | None = None) -> str:
    """Of the loader that there is; where the loop makes its batches itself, their size alone."""
    if case.loader or case.evidence.job.trainer:
        return batch_size(case.evidence.job, count, accumulate)
    after = {None: "", 1: "  # and optimizer.step() after each"}
    return f"batch_size = {count}" + after.get(accumulate, f"  # and optimizer.step() after {accumulate} of them")


def mergeable_accumulation(case: Case) -> Finding | None:
    """By the fixed overhead of forward and backward, which every micro-batch pays."""
    merged, limits, batch = case.micro_batches, case.limits, case.batch or 1
    if merged < 2 or not case.has_room(merged):
        return None
    low = case.grows.compute_fixed_low_ms * (1 - 1 / merged)
    high = case.grows.compute_fixed_high_ms * (1 - 1 / merged)
    if low < limits.min_share * case.grows.step_ms:
        return None
    # Single operators told 1.4x to 2.8x of convolutions over volumes whose whole passes gave 1.08x.
    is_choice = case.usual or not case.grows.replayed
    told = case.evidence.job.accumulation_at
    asking = backward_line(case.evidence)
    at = told or (asking.site if asking is not None and not case.loader else case.place)
    return Finding(
        id="PD05.mergeable-accumulation",
        severity=Severity.NOTE if is_choice else case.severity(low, limits.merge_warning_share),
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
            code=_code(case, batch * merged, accumulate=1),
            risk="Batch normalisation sees larger batches; memory for activations grows with the micro-batch.",
        ),
        savings=savings(
            case.step,
            low,
            high,
            "forward and backward run again with a larger batch"
            if case.grows.replayed
            else "matrix products timed at two sizes, and up to 10 us for each other operator, paid once instead of "
            "per micro-batch",
        ),
    )


def too_small(case: Case) -> Finding | None:
    """By what the step would take with so many more samples that memory has room for them: an opportunity, because the
    size is a choice of optimisation first."""
    limits = case.limits
    factor = limits.factor if case.has_room(limits.factor) else 2
    low, high = case.grows.saved(factor)
    if low < limits.min_share * case.grows.step_ms or not case.has_room(factor):
        return None
    gain_low, gain_high = case.grows.gain(factor)
    timed = not isinstance(case.ops.batch_timings, Missing)
    return Finding(
        id="PD05.batch-too-small",
        severity=Severity.NOTE,
        confidence=Confidence.LOW if case.evidence.on_cuda else Confidence.MEDIUM,
        message="{fixed} per step ({fixed_share}) is fixed overhead, independent of the batch size"
        + (" of {batch}" if case.batch else ""),
        reasoning="a batch {times} times as large would process {more_low} to {more_high} the samples per second; "
        "{ops:operator} per step must be launched, weights read and parameters updated, however many samples there are"
        + ("; the job reaches {peak_share} of this machine's arithmetic" if timed else ""),
        evidence=(
            Measurement("times", factor, "count", "times the batch"),
            Measurement("more_low", gain_low, "ratio", "throughput then, at least"),
            Measurement("more_high", gain_high, "ratio", "throughput then, at most"),
            *case.figures(),
        ),
        location=location(case.place),
        fix=Fix(
            text="Try a larger batch. It means fewer steps per epoch: raise the learning rate with it (linearly for "
            "SGD, with the square root for Adam), and compare the validation loss after the same number of epochs.",
            code=_code(case, (case.batch or 1) * factor),
            risk="A larger batch trains differently and may generalise worse; it takes more memory.",
            remedies=(f"batch.larger={factor}",),
        ),
        savings=savings(
            case.step,
            low,
            high,
            "per batch of today's size; from the job's own forward and backward, run again with a larger batch"
            if case.grows.replayed
            else "per batch of today's size; from the job's own matrix products timed at two sizes, up to 10 us for "
            "each other operator, and the optimizer's part"
            if timed
            else "per batch of today's size; the host's part of the step stays, the kernels' grows",
            general=True,
        ),
    )


def too_large(case: Case) -> Finding | None:
    """Products that take less per sample with a quarter of the batch, by more than three more launches cost."""
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
            code=_code(case, max(1, (case.batch or 1) // pieces), accumulate=pieces),
            risk="Batch normalisation sees smaller batches.",
        ),
        savings=savings(
            case.step,
            low,
            high,
            "the job's own matrix products timed with a quarter of the batch, less three times the launches",
        ),
    )
