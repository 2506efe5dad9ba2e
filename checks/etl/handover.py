"""Batches that are ready when asked for: handing them to this process, or to the GPU, is what takes time."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.api.causes import HANDOVER_MS, Overlap
from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    share,
)
from perfdoctor.api.quantities import Evidence, Fetch, Missing, Step

from .._shared.loader_fixes import fewer_workers
from .waiting import Case, Limits, fetch_measurements

_COLLATE_IN_PROCESS = 0.3
"""Of what `collate_fn` takes in a worker, where it puts the batch into shared memory: 0.15 against 0.5 ms, measured."""
_FEW_TENSORS = 1000.0
"""Bytes through the pipe: the handle of a tensor takes about 200, so these are four at most."""
PINNED = Fix(
    text="Let the loader pin its batches, and copy them without blocking.",
    code="loader = DataLoader(dataset, ..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    risk="Pinned memory cannot be swapped out; pin batches, not data sets.",
)


def handover(case: Case, fetch: Fetch, model: Overlap) -> Finding | None:
    """None for what any hand-over takes."""
    loader = case.loader
    empty = 0.0 if isinstance(loader.empty_share, Missing) else loader.empty_share
    extra = (
        *fetch_measurements(fetch),
        milliseconds("transport_ms", loader.transport_ms, "unpickling one batch"),
        Measurement("transport_bytes", loader.transport_bytes, "bytes", "through the pipe per batch"),
        share("empty", empty, "arrivals at an empty queue"),
    )
    made_here = (fetch.total_ms - fetch.run_delay_ms) * loader.steady_batches_per_step
    collate = min(fetch.collate_cpu_ms * loader.steady_batches_per_step, made_here)
    if made_here < min(case.wait, model.handover_ms[1]):
        # Making the batch costs less than receiving it ever could: the textbook's workers are the problem.
        return case.finding(
            "needless-workers",
            "receiving a batch takes longer than making it",
            "a batch takes only {make_ms} to make, and batches were ready when asked for: the time goes into handing "
            "them from process to process",
            fewer_workers(case.evidence.job),
            "the wait, less making the batch in the training process: no more than in a worker, and as little as 30 % "
            "of its `collate_fn`, which there also makes shared memory",
            low=case.wait - made_here,
            high=case.wait - made_here + collate * (1 - _COLLATE_IN_PROCESS),
            extra=extra,
        )
    if case.wait <= HANDOVER_MS[1] * max(1.0, loader.steady_batches_per_step):
        return None
    # With few tensors, there is nothing that `collate_fn` could save: a note, with what may help.
    few = loader.transport_bytes < _FEW_TENSORS
    finding = case.finding(
        "transport",
        "batches are ready, but slow to hand over",
        "{transport_bytes} go through a pipe for each batch and unpickling takes {transport_ms}; only tensors travel "
        "through shared memory, and each of them costs about 0.4 ms"
        + (", or more while the worker that must answer is making its next batch" if few else ""),
        _shared_by_name() if few else _stacked(),
        "the wait, less the 0.3 to 2 ms that handing over one tensor takes"
        + ("; whether this helps depends on what the workers do meanwhile" if few else ""),
        low=0.0 if few else 0.5 * max(0.0, case.wait - model.handover_ms[1]),
        high=max(0.0, case.wait - model.handover_ms[0]),
        extra=extra,
    )
    return replace(finding, severity=Severity.NOTE, confidence=Confidence.LOW) if few else finding


def _stacked() -> Fix:
    return Fix(
        text="Return few, large tensors from `collate_fn`: stack lists of tensors, and turn NumPy arrays into tensors, "
        "which go through shared memory instead of the pipe.",
        code="def collate(samples):\n    return torch.stack(samples)  # one tensor, not a list",
        risk="Samples of different shapes must be padded first.",
    )


def _shared_by_name() -> Fix:
    return Fix(
        text="Try fewer workers if CPUs are few, or share memory by name, so that no worker has to answer.",
        code='torch.multiprocessing.set_sharing_strategy("file_system")  # before the loader is made',
        risk="Shared memory of a job that is killed stays until somebody removes it from /dev/shm.",
    )


def pageable_copies(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """Copies to the device from memory that is not pinned, by their measured time."""
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
        fix=replace(PINNED, remedies=("etl.pin-memory",)),
        savings=cost.savings(
            (0.4, 0.95),
            "measured copy time; pinned copies have a speed-up of 2x to 4x and overlap with kernels",
            Part.OTHER,
        ),
    )
