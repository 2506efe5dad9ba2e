"""What DistributedDataParallel sends more, or more often, than it need."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import BUFFERS, GRADIENTS, GRADIENTS_AGAIN, SEARCH

from .case import Case

_NO_SYNC_SAVES = (0.6, 1.0)
"""Of what the needless reductions take: one of the last, larger, may have hidden less of itself."""
_BUCKETS_SAVE = (0.3, 0.95)
"""Of what the needless buckets' part of the reduction takes, by their number: 60 of them took 75 ms, one 16 ms."""
_BUCKET_BYTES = 25 << 20
"""torch's default size of a bucket."""
_MANY = 4
"""Times the buckets of that size: torch makes a first, small one by itself."""
_SENT = (0.3, 1.0)
"""Of a broadcast of buffers: the ranks then meet at the next collective, where most of it may be waited for again. With
60 layers of batch norm 26.7 ms became 23.4 once, and 52 did not become less another time."""
_SEARCHED = (0.7, 1.0)
_HALVED = 0.5
"""Half of sending at best: numbers of 16 bits, or twice the batch."""


def accumulation_without_no_sync(case: Case) -> Finding | None:
    """Gradients of one model reduced several times per optimizer step."""
    again, first = case.together.of_kind(GRADIENTS_AGAIN), case.together.of_kind(GRADIENTS)
    if again is None or first is None:
        return None
    cost = case.worth(again.least_ms)
    if cost is None:
        return None
    return Finding(
        id="PD19.accumulation-without-no-sync",
        severity=case.severity(cost),
        confidence=case.confidence,
        message="all but the last of {reductions:reduction} of gradients per step are for nothing: "
        "{cost_ms} ({cost_share})",
        reasoning="gradients add up over the batches of an optimizer step on each rank, and their sum can be reduced "
        "once; the rank that waits least still waits {cost_ms} in the others",
        evidence=(
            *cost.measured("in needless reductions, per step"),
            Measurement("reductions", again.calls_per_step + first.calls_per_step, "count", "reductions per step"),
        ),
        fix=Fix(
            text="Let only the last batch of an optimizer step reduce.",
            code="from contextlib import nullcontext\n\nlast = (i + 1) % accumulate == 0\n"
            "with nullcontext() if last else model.no_sync():\n    loss_of(model(batch)).backward()  # the forward too",
            risk="Gradients are added before they are reduced: the sum is the same but for rounding.",
            remedies=("ddp.no-sync",),
        ),
        savings=cost.savings(_NO_SYNC_SAVES, "the time of the needless reductions", Part.COMMUNICATION),
    )


def small_buckets(case: Case) -> Finding | None:
    """Many buckets where a few of torch's default size would do."""
    model, sent = case.together.model, case.together.of_kind(GRADIENTS)
    if model is None or sent is None or not model.bucket_bytes:
        return None
    count, total = len(model.bucket_bytes), sum(model.bucket_bytes)
    enough = 1 + -(-total // _BUCKET_BYTES)
    cost = case.worth(sent.least_ms * (1 - enough / count))
    if cost is None or count < _MANY * enough:
        return None
    return Finding(
        id="PD19.small-buckets",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="gradients are sent in {buckets:bucket} of {bucket_bytes}, where {enough} would do: {cost_ms} "
        "per step ({cost_share})",
        reasoning="every bucket is a collective of its own, a round trip between the ranks; together they take "
        "{reduction_ms} beyond the backward pass",
        evidence=(
            *cost.measured("by the number of needless buckets, per step"),
            Measurement("buckets", count, "count", "buckets"),
            Measurement("bucket_bytes", total / count, "bytes", "mean size of a bucket"),
            Measurement("enough", enough, "count", "buckets of torch's default size"),
            milliseconds("reduction_ms", sent.least_ms, "waiting for the reduction, per step"),
        ),
        fix=Fix(
            text="Leave `bucket_cap_mb` at its default, or raise it.",
            code="model = DistributedDataParallel(model)  # bucket_cap_mb=25",
        ),
        savings=cost.savings(
            _BUCKETS_SAVE, "the measured reduction, by how many of its buckets are not needed", Part.COMMUNICATION
        ),
    )


def buffers_broadcast(case: Case) -> Finding | None:
    """Buffers (running statistics) that rank 0 sends before every forward pass."""
    sent = case.together.of_kind(BUFFERS)
    cost = case.worth(sent.least_ms) if sent is not None else None
    if sent is None or cost is None:
        return None
    return Finding(
        id="PD19.buffers-broadcast",
        severity=Severity.NOTE,  # torch's default, and somebody may evaluate on every rank
        confidence=case.confidence,
        message="rank 0 sends the model's buffers to all ranks {calls:time} per step: {cost_ms} ({cost_share})",
        reasoning="running statistics of batch norm are not used in training, so that they need to be the same only "
        "before an evaluation",
        evidence=(
            *cost.measured("broadcasts per step"),
            Measurement("calls", sent.calls_per_step, "count", "broadcasts per step"),
        ),
        fix=Fix(
            text="Do not send them in every step; send them before an evaluation, or save rank 0's.",
            code="model = DistributedDataParallel(model, broadcast_buffers=False)"
            "  # forward_sync_buffers=False from torch 2.13 on",
            risk="Each rank keeps running statistics of its own batches until they are sent.",
        ),
        savings=cost.savings(_SENT, "the broadcasts, timed on the rank that waits least in them", Part.COMMUNICATION),
    )


def find_unused(case: Case) -> Finding | None:
    """The search of the graph for parameters without a gradient."""
    search = case.together.of_kind(SEARCH)
    cost = case.worth(search.least_ms) if search is not None else None
    if cost is None:
        return None
    return Finding(
        id="PD19.find-unused-parameters",
        severity=case.severity(cost),
        confidence=case.confidence,
        message="`find_unused_parameters=True` searches the graph for {cost_ms} per step ({cost_share})",
        reasoning="DistributedDataParallel looks through the whole graph after each forward pass for parameters that "
        "will get no gradient",
        evidence=cost.measured("searching, per step"),
        fix=Fix(
            text="Leave it out where every forward pass uses all parameters; where always the same ones go unused, "
            "freeze them or say `static_graph=True`.",
            code="model = DistributedDataParallel(model)  # or static_graph=True",
            risk="Where a forward pass leaves parameters out, torch then raises an error in the next one.",
        ),
        savings=cost.savings(_SEARCHED, "the search, timed in every step"),
    )


def exposed(case: Case, named: tuple[Finding, ...]) -> Finding | None:
    """What sending takes, nothing hides and nobody has `named`; an opportunity: the network may do no better."""
    avoidable = sum(finding.savings.ceiling_ms for finding in named if finding.savings.part is Part.COMMUNICATION)
    cost = case.worth(case.together.exposed_ms - avoidable)
    if cost is None:
        return None
    return Finding(
        id="PD19.exposed-communication",
        severity=case.severity(cost),
        confidence=Confidence.LOW,
        message="the ranks spend {cost_ms} per step ({cost_share}) in collectives that no computing hides",
        reasoning="also the rank that waits least waits so long: it is what sending takes, and no rank's lateness",
        evidence=cost.measured("in collectives that no other finding is about, per step"),
        fix=Fix(
            text="Send less or less often: larger batches per rank, accumulation with `no_sync`, 16-bit gradients; "
            "with few CPUs per rank also fewer ranks.",
            code="from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n\n"
            "model.register_comm_hook(None, bf16_compress_hook)",
            risk="Gradients rounded to 16 bits, or larger batches, can change how training converges.",
        ),
        savings=savings(
            case.step,
            0.0,
            _HALVED * cost.ms,
            "nothing for sure; half at best, with half as much to send",
            ceiling=cost.ms,
            part=Part.COMMUNICATION,
            general=True,
        ),
    )
