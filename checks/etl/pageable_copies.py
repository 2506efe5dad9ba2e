"""Copies to the device from memory that is not pinned."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Part, location, milliseconds, share
from perfdoctor.api.quantities import Evidence, Missing, Step

from .waiting import Limits


def pageable_copies(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """By their measured time."""
    ops = evidence.ops
    if isinstance(ops, Missing) or not evidence.on_cuda:
        return None
    cost = Cost(step, ops.pageable_copies_ms)
    if cost.share < limits.min_share:
        return None
    loader = evidence.loaders[0] if not isinstance(evidence.loaders, Missing) else None
    return Finding(
        id="PD03.pageable-copies",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="copies from pageable memory to the GPU take {copies_ms} per step ({copies_share})",
        reasoning="a copy from pageable memory goes through a staging buffer and blocks the loop, whatever "
        "`non_blocking` says; one from pinned memory runs beside the kernels",
        evidence=(
            milliseconds("copies_ms", cost.ms, "pageable copies per step"),
            share("copies_share", cost.share, "of the step"),
        ),
        location=location(loader.site) if loader else None,
        fix=Fix(
            text="Let the loader pin its batches, and copy them without blocking.",
            code="loader = DataLoader(dataset, ..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
            risk="Pinned memory cannot be swapped out; pin batches, not data sets.",
            remedies=("etl.pin-memory",),
        ),
        savings=cost.savings(
            (0.4, 0.95),
            "measured copy time; pinned copies have a speed-up of 2x to 4x and overlap with kernels",
            Part.OTHER,
        ),
    )
