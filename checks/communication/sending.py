"""What DistributedDataParallel sends more, or more often, than it need."""

from __future__ import annotations

from dataclasses import replace

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
    savings,
)
from perfdoctor.api.quantities import (
    ALL_GATHER,
    BUFFERS,
    FUNCTIONAL,
    GRADIENTS,
    GRADIENTS_AGAIN,
    NO_LINE,
    REDUCE_SCATTER,
    SEARCH,
    Missing,
    Site,
)

from .._shared.lines import backward_line
from .case import Case, enough

_NO_SYNC_SAVES = (0.6, 1.0)
"""Of what the needless reductions take: one of the last, larger, may have hidden less of itself."""
_BUCKETS_SAVE = (0.3, 0.95)
"""Of what the needless buckets' part of the reduction takes, by their number: 60 of them took 75 ms, one 16 ms."""
_SENT = (0.3, 1.0)
"""Of a broadcast of buffers: the ranks then meet at the next collective, where most of it may be waited for again. With
60 layers of batch norm 26.7 ms became 23.4 once, and 52 did not become less another time."""
_SEARCHED = (0.7, 1.0)
_HALVED = 0.5
"""Half of sending at best: numbers of 16 bits, or twice the batch; and half of a pipeline's bubble."""
_TOLD = {
    ALL_GATHER: "all-gathers of parameters",
    REDUCE_SCATTER: "reduce-scatters of gradients",
    FUNCTIONAL: "tensor parallel layers",
}
_SEND_LESS = Fix(
    text="Send less or less often: larger batches per rank, accumulation with `no_sync`, 16-bit gradients; "
    "with few CPUs per rank also fewer ranks.",
    code="from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n\n"
    "model.register_comm_hook(None, bf16_compress_hook)",
    risk="Gradients rounded to 16 bits, or larger batches, can change how training converges.",
)
_SHARDED = Fix(
    text="Send less or less often: larger batches per rank; keep parameters after the forward pass where memory "
    "allows; send them, and gradients, in 16 bits.",
    code="fully_shard(module, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))",
    risk="Parameters that are kept need memory; 16 bits can change how training converges.",
)
_SPLIT = Fix(
    text="Split layers over fewer ranks, or larger layers; let what lies between two split layers stay split "
    "(`SequenceParallel`, or `ColwiseParallel` before `RowwiseParallel`).",
    risk="Fewer parts need more memory each.",
)
_FILL = Fix(
    text="Cut the batch into more micro-batches, or let each rank compute several stages that are not neighbours.",
    code="schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * len(stages))",
    risk="Smaller micro-batches use a device less well.",
)
_EXPOSED = "the ranks spend {cost_ms} per step ({cost_share}) in collectives that no computing hides"
_EXPOSED_REASON = "also the rank that waits least waits so long: it is what sending takes, and no rank's lateness"
_BUBBLE = "every stage of the pipeline waits for others, the busiest for {cost_ms} per step ({cost_share})"
_BUBBLE_REASON = (
    "a stage has nothing to do until the first micro-batch reaches it, nor once its last is through: with p stages and "
    "m micro-batches (p - 1) / (m + p - 1) of the step; sending is in it too"
)


def accumulation_without_no_sync(case: Case) -> Finding | None:
    """Gradients of one model reduced several times per optimizer step."""
    again, first = case.together.of_kind(GRADIENTS_AGAIN), case.together.of_kind(GRADIENTS)
    if again is None or first is None:
        return None
    cost = case.worth(again.least_ms)
    if cost is None:
        return None
    asking, reductions = backward_line(case.evidence), round(again.calls_per_step + first.calls_per_step)
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
            Measurement("reductions", reductions, "count", "reductions per step"),
        ),
        location=location(asking.site) if asking is not None else None,
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
    few = enough(count, total)
    cost = None if few is None else case.worth(sent.least_ms * (1 - few / count))
    if few is None or cost is None:
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
            Measurement("enough", few, "count", "buckets of torch's default size"),
            milliseconds("reduction_ms", sent.least_ms, "waiting for the reduction, per step"),
        ),
        location=location(model.made_at),
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
        reasoning="running statistics of batch norm are not used in training, and tables stay as they are, so that "
        "buffers need to be the same only before an evaluation",
        evidence=(
            *cost.measured("broadcasts per step"),
            Measurement("calls", sent.calls_per_step, "count", "broadcasts per step"),
        ),
        location=location(_made_at(case)),
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
        location=location(_made_at(case)),
        fix=Fix(
            text="Leave it out where every forward pass uses all parameters; where always the same ones go unused, "
            "freeze them or say `static_graph=True`.",
            code="model = DistributedDataParallel(model)  # or static_graph=True",
            risk="Where a forward pass leaves parameters out, torch then raises an error in the next one.",
        ),
        savings=cost.savings(_SEARCHED, "the search, timed in every step"),
    )


def _made_at(case: Case) -> Site | Missing:
    """The line that wraps the model."""
    return NO_LINE if case.together.model is None else case.together.model.made_at


def exposed(case: Case, named: tuple[Finding, ...]) -> Finding | None:
    """What sending takes, nothing hides and nobody has `named`; an opportunity: the network may do no better."""
    avoidable = sum(finding.savings.ceiling_ms for finding in named if finding.savings.part is Part.COMMUNICATION)
    cost = case.worth(case.together.exposed_ms - avoidable)
    if cost is None:
        return None
    if case.together.stages:
        return _exposed(case, cost, "PD19.pipeline-bubble", _BUBBLE, _BUBBLE_REASON, _FILL, "twice the micro-batches")
    known = {kind: call.least_ms for kind in _TOLD if (call := case.together.of_kind(kind)) is not None}
    among = f" ({', '.join(f'{{{kind}_ms}} in {_TOLD[kind]}' for kind in known)})" if known else ""
    fix = _SHARDED if case.together.shard_bytes else _SPLIT if FUNCTIONAL in known else _SEND_LESS
    finding = _exposed(
        case, cost, "PD19.exposed-communication", _EXPOSED + among, _EXPOSED_REASON, fix, "half as much to send"
    )
    more = [milliseconds(f"{kind}_ms", ms, f"in {_TOLD[kind]}, per step") for kind, ms in known.items()]
    return replace(finding, evidence=(*finding.evidence, *more))


def _exposed(case: Case, cost: Cost, name: str, message: str, reasoning: str, fix: Fix, halved: str) -> Finding:
    return Finding(
        id=name,
        severity=case.severity(cost),
        confidence=Confidence.LOW,
        message=message,
        reasoning=reasoning,
        evidence=cost.measured("in collectives that no other finding is about, per step"),
        fix=fix,
        savings=savings(
            case.step,
            0.0,
            _HALVED * cost.ms,
            f"nothing for sure; half at best, with {halved}",
            ceiling=cost.ms,
            part=Part.COMMUNICATION,
            general=True,
        ),
    )
