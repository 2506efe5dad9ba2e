"""Samples that would cost much less in a larger batch, and micro-batches that memory would allow to merge."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, milliseconds, savings
from perfdoctor.api.quantities import Missing

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


def too_small(case: Case) -> Finding | None:
    """By what the step would take with so many more samples that memory has room for them."""
    limits = case.limits
    factor = limits.factor if case.has_room(limits.factor) else 2
    low, high = case.grows.saved(factor)
    if low < limits.min_share * case.grows.step_ms or not case.has_room(factor):
        return None
    gain_low, gain_high = case.grows.gain(factor)
    timed = not isinstance(case.ops.batch_timings, Missing)
    return Finding(
        id="PD05.batch-too-small",
        severity=Severity.NOTE if case.usual else case.severity(low, limits.warning_share),
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
            code=batch_size(case.evidence.job, (case.batch or 1) * factor),
            risk="A larger batch trains differently and may generalise worse; it takes more memory.",
            remedies=(f"batch.larger={factor}",),
        ),
        savings=savings(
            case.step,
            low,
            high,
            "per batch of today's size; from the job's own matrix products timed at two sizes, up to 10 us for each "
            "other operator, and the optimizer's part"
            if timed
            else "per batch of today's size; the host's part of the step stays, the kernels' grows",
            general=True,
        ),
    )
