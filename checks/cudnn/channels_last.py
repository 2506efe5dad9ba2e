"""Images whose channels lie last in memory, where a CPU's convolutions are faster so."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, in_step, tried
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
from perfdoctor.api.quantities import Evidence, LibraryUse, OpProfile, Step

from .._shared.lines import model_place

_KEEPS = (0.5, 1.1)
"""Of what timed operators save: those that were not timed may turn tensors back, and where a convolution's tensors
lie in memory can make it a third slower by itself."""
_KEEPS_BETWEEN_RANKS = (0.0, 1.1)
"""Likewise: buckets that DistributedDataParallel has laid out for gradients with their channels first are copied to and
from in each step. 0.89x and 1.02x were measured where 1.10x to 1.26x was told."""


def channels_last(evidence: Evidence, step: Step, ops: OpProfile, use: LibraryUse, min_share: float) -> Finding | None:
    """By the job's operators on images, timed both ways; None where oneDNN did not do the work.

    An opportunity: the other layout is torch's own choice, and nothing in the job is wrong.
    """
    if not use.layout_timings or any(one.native for one in use.convolutions) or step.step_ms <= 0:
        return None
    first = sum(timing.ms_per_step for timing in use.layout_timings)
    last = sum(timing.ms_per_step * timing.last_ms / timing.first_ms for timing in use.layout_timings)
    whole = tried(step, ops, "channels last")
    saved = in_step(step, ops, first - last) if whole is None else whole
    if saved < min_share * step.step_ms:
        return None
    keeps = PASSES_KEEP if whole is not None else _KEEPS_BETWEEN_RANKS if evidence.job.world_size > 1 else _KEEPS
    return Finding(
        id="PD02.channels-last",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="forward and backward would take {saved_ms} less per step with channels last ({saved_share})"
        if whole is not None
        else "operators on images have a speed-up of {ratio} with channels last: {saved_ms} per step ({saved_share})",
        reasoning="the job's own passes were made again that way after its last step"
        if whole is not None
        else "{kinds:operator} on images, {first_ms} per step, timed in the job's process with their channels "
        "first, as now, and last",
        evidence=(
            Measurement("ratio", first / last, "ratio", "channels first over channels last, timed"),
            milliseconds("saved_ms", saved, "saved by channels last, per step"),
            share("saved_share", saved / step.step_ms, "of the step"),
            milliseconds("first_ms", first, "in these operators per step"),
            Measurement("kinds", len(use.layout_timings), "count", "operators timed"),
        ),
        location=location(model_place(evidence)),
        fix=Fix(
            text="Keep model and images in the channels-last format.",
            code="model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)  # each batch",
            risk="Operators without a kernel for it turn tensors back; `view` on such tensors can fail, `reshape` does "
            "not. Convert the model before DistributedDataParallel gets it.",
            remedies=("layout.channels-last",),
        ),
        savings=savings(
            step,
            keeps[0] * saved,
            keeps[1] * saved,
            "the job's own passes, made again with channels last"
            if whole is not None
            else "the job's own operators on images timed in its process in both layouts; half of that to a tenth more"
            + ", nothing at worst where ranks exchange gradients" * (keeps is _KEEPS_BETWEEN_RANKS),
        ),
    )
