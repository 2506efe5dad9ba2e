"""The wait for data where only a trace tells of it: how long, and with the device idle, but not why."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    present,
    severity,
    share,
)
from perfdoctor.api.quantities import Activity, Evidence, Idle, Missing, Site, Step

from .._shared.traced import at_most, traced
from .handover import PINNED
from .waiting import Limits

_ADVICE = {
    False: "Its loader has no workers, so that batches are made between the steps: give it some.",
    True: "Its workers do not keep up: more of them, a cheaper data set or `collate_fn`, a larger `prefetch_factor`.",
    None: "More workers, if it has few; a cheaper data set or `collate_fn`, if they are busy.",
}


def in_trace(evidence: Evidence, step: Step, unseen: Missing, limits: Limits) -> Outcome:
    """Without loaders: the host's wait, or that part of it in which the device had nothing to do."""
    seen = evidence.activity
    copies = _exposed_copies(step, seen)
    cost = Cost(step, _wait(step, seen))
    shared = (
        milliseconds("wait_ms", cost.ms, "wait for data per step"),
        share("wait_share", cost.share, "of the step"),
    )
    if cost.share >= limits.min_share:
        return found(_starved(step, seen, cost, limits), *present(copies), measurements=shared)
    if copies is not None:
        return found(copies, measurements=shared)
    if isinstance(seen, Missing) and step.parts.input_wait <= 0:
        return cannot_tell(f"loaders were not seen: {unseen}")
    return clear("the loader keeps up: the wait for data costs {wait_ms} per step ({wait_share})", *shared)


def _wait(step: Step, seen: Activity | Missing) -> float:
    if isinstance(seen, Missing):
        return step.parts.input_wait
    idle = seen.idle_by(Idle.INPUT)
    return idle.ms if idle is not None else 0.0


def _starved(step: Step, seen: Activity | Missing, cost: Cost, limits: Limits) -> Finding:
    workers: bool | Missing = Missing("") if isinstance(seen, Missing) else seen.workers
    at: Site | Missing = Missing("")
    if isinstance(seen, Missing):
        message = "the loop waits {cost_ms} per step for data ({cost_share})"
        reasoning = "by the annotations of the loader; the trace does not say how a batch is made"
        waited = cost.ms
    else:
        idle = seen.idle_by(Idle.INPUT)
        at = idle.at if idle is not None else at
        message = "the device has nothing to do for {cost_ms} per step ({cost_share}) while the loop waits for data"
        reasoning = (
            "of {waited_ms} in the loader, the device works on for the rest; the trace does not say how a batch is made"
        )
        waited = seen.input_ms
    return Finding(
        id="PD03.waiting-for-data",
        severity=severity(cost.share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=message,
        reasoning=reasoning,
        evidence=(
            *cost.measured("lost to waiting for data, per step"),
            milliseconds("waited_ms", waited, "the host in the loader, per step"),
        ),
        location=location(at),
        fix=Fix(
            text=_ADVICE[None if isinstance(workers, Missing) else workers]
            + " `perfdoctor check` on the job says which of these helps.",
            code="loader = DataLoader(dataset, ..., num_workers=4, persistent_workers=True, pin_memory=True)",
            risk="Workers need CPUs and memory of their own.",
        ),
        savings=at_most(step, cost.ms, "all of that wait", Part.INPUT_WAIT),
    )


def _exposed_copies(step: Step, seen: Activity | Missing) -> Finding | None:
    case = traced(step, seen)
    if case is None:
        return None
    copies = case.activity.copies
    cost = case.worth(copies.pageable_exposed_ms)
    if cost is None:
        return None
    return Finding(
        id="PD03.pageable-copies",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="copies from pageable memory take {cost_ms} per step ({cost_share}) in which the device does nothing "
        "else",
        reasoning="a copy from pageable memory goes through a staging buffer and blocks the loop, whatever "
        "`non_blocking` says; {copies_ms} of copies per step, {bytes} in all",
        evidence=(
            *cost.measured("pageable copies beside which nothing runs, and making them ready, per step"),
            milliseconds("copies_ms", copies.ms, "copies to the device per step"),
            Measurement("bytes", copies.bytes, "bytes", "copied to the device per step"),
        ),
        fix=PINNED,
        savings=case.at_most(cost.ms, "the part of these copies beside which nothing runs"),
    )
