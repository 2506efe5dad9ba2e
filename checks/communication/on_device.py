"""Communication kernels, by traces: what no computing hides, and whether that is sending or waiting for others."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    clear,
    found,
    milliseconds,
    not_applicable,
    share,
)
from perfdoctor.api.quantities import Collectives, Missing

from .._shared.traced import Traced

_MOSTLY = 0.5
"""Of the time in collectives: who takes more than that is what to look at."""


def in_trace(case: Traced) -> Outcome:
    """The amount; its reason only where all ranks were recorded."""
    talk = case.activity.collectives
    if talk is None:
        return not_applicable("the trace holds no communication kernels")
    shared = (
        milliseconds("talk_ms", talk.ms, "with a communication kernel on, per step"),
        milliseconds("exposed_ms", talk.exposed_ms, "of which no other kernel ran"),
        share("exposed_share", talk.exposed_ms / case.step.step_ms, "of the step"),
        Measurement("collectives", talk.per_step, "count", "collectives per step"),
        Measurement("names", ", ".join(talk.names), "text", "the longest of them"),
        *_reasons(talk),
    )
    late = _late_rank(case, talk)
    if late is not None:
        return found(late, measurements=shared)
    cost = case.worth(talk.exposed_ms)
    if cost is None:
        return clear("computing hides all but {exposed_ms} of {talk_ms} of communication per step", *shared)
    waiting, mostly = talk.waiting_ms, ""
    if isinstance(waiting, Missing):
        reasoning = "whether that is sending or waiting for ranks that come later is not known: " + waiting.reason
        text = (
            "Record all ranks over several steps, and give the folder to `perfdoctor report`. As long as it may be "
            "waiting, sending less may save nothing."
        )
    elif waiting >= _MOSTLY * (waiting + _known(talk.transport_ms)):
        mostly = ", most of it waiting for other ranks"
        reasoning = (
            "it is waiting for other ranks, not sending: where the last rank comes, the same collectives take "
            "{transport_ms} per step, and this rank is in them for {waiting_ms} longer"
        )
        text = "Find what makes the ranks come at different times: their data, their CPUs, work that one of them does."
        if isinstance(talk.late, Missing):
            text += f" Which rank is late is not known: {talk.late}."
    else:
        mostly = ", most of it sending"
        reasoning = (
            "most of it is sending: also the rank that comes last is in the collectives for {transport_ms} per step"
        )
        text = (
            "Send less or less often: larger batches per rank, accumulation with `no_sync`, 16-bit gradients, larger "
            "buckets."
        )
    return found(
        Finding(
            id="PD19.exposed-communication",
            severity=case.severity(cost),
            confidence=Confidence.MEDIUM,
            message="communication takes {cost_ms} per step ({cost_share}) that no computing hides" + mostly,
            reasoning=reasoning,
            evidence=(*cost.measured("in communication that no other kernel hides, per step"), *shared),
            fix=Fix(text=text),
            savings=case.at_most(cost.ms, "communication beside which no other kernel runs"),
        ),
        measurements=shared,
    )


def _reasons(talk: Collectives) -> tuple[Measurement, ...]:
    if isinstance(talk.transport_ms, Missing) or isinstance(talk.waiting_ms, Missing):
        return ()
    return (
        milliseconds("transport_ms", talk.transport_ms, "sending, by the rank that comes last, per step"),
        milliseconds("waiting_ms", talk.waiting_ms, "waiting for other ranks, per step"),
    )


def _known(ms: float | Missing) -> float:
    return 0.0 if isinstance(ms, Missing) else ms


def _late_rank(case: Traced, talk: Collectives) -> Finding | None:
    """The rank that the others wait for, where one is the last in nearly all steps."""
    if isinstance(talk.late, Missing):
        return None
    cost = case.worth(talk.late.ms)
    if cost is None:
        return None
    return Finding(
        id="PD19.late-rank",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="all others wait {cost_ms} per step ({cost_share}) for rank {rank}",
        reasoning="a collective ends when the last rank has come: rank {rank} is the last in {late_share} of the "
        "steps, and by so much later than the next",
        evidence=(
            *cost.measured("by which it is later than the next rank, per step"),
            Measurement("rank", talk.late.rank, "count", "the rank that is late"),
            share("late_share", talk.late.share, "of the steps, in which it comes last"),
        ),
        fix=Fix(text="Compare what this rank does with what the others do: its data, its CPUs, its device's clock."),
        savings=case.at_most(cost.ms, "by how much this rank comes later than the next"),
    )
