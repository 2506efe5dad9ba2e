"""Work whose result is there already: computed again in the same step, or in every step of what does not change."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Evidence, Missing, RepeatedWork, Step

from .._shared.aside import AROUND_MS, OPERATORS
from .._shared.lines import room_ms
from .._shared.spread import Spread, spread, starts_of
from .limits import Limits

_BACKWARD = (0.5, 1.15)
"""Of their nodes in the backward pass: the gradients of both uses must still be added."""


def repeated_work(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line; none where nothing is computed twice, or nobody looked."""
    starts = starts_of(evidence.epoch_starts)
    found = spread(evidence.repeated_work, starts.repeated if starts else (), starts)
    searched = evidence.searched_modules
    debugged = set() if isinstance(searched, Missing) else {call.site for call in searched}  # PD16 tells of those
    return present(
        *(
            _finding(evidence, step, one, limits, often)
            for one, often in found
            if not _is_benchmark(one) and one.at not in debugged
        )
    )


def _is_benchmark(one: RepeatedWork) -> bool:
    """Whether it is a model on a batch that never changes: that stands for data which do."""
    return one.is_unchanged and one.on_same_data and one.of_parameters


def _finding(evidence: Evidence, step: Step, one: RepeatedWork, limits: Limits, often: Spread) -> Finding | None:
    low, high = (
        forward * one.forward_ms + backward * one.backward_ms + around_ms * one.ops_per_step
        for forward, backward, around_ms in zip(OPERATORS, _BACKWARD, AROUND_MS, strict=True)
    )
    if often.every == 1:
        room = room_ms(evidence, step, one.at) + (step.parts.backward if one.backward_ms else 0.0)
        low, high = min(low, room), min(high, room)
    cost = Cost(step, (low + high) / 2)
    if often.share(step, cost.ms) < limits.repeated_share:
        return None
    return Finding(
        id="PD10.unchanged-work" if one.is_unchanged else "PD10.repeated-work",
        severity=cost.severity(limits.repeated_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=_message(one, often) + often.clause,
        reasoning=_reasoning(one, often),
        evidence=(
            *often.measured(cost),
            Measurement(
                "operators", one.ops_per_step * often.every, "count", f"operators that need not run, {often.each}"
            ),
            Measurement("names", ", ".join(f"`{name}`" for name in one.operators), "text", "the longest of them"),
            Measurement("first_at", str(one.first_at or one.at), "text", "where it is computed first"),
            milliseconds("forward_ms", one.forward_ms, "in these operators, per step"),
            milliseconds("backward_ms", one.backward_ms, "in their part of the backward pass, per step"),
        ),
        location=location(one.at),
        fix=_ONCE if one.is_unchanged else _KEPT if often.every == 1 else _BEFORE,
        savings=savings(
            step, low, high, "operators of a step or two, timed one by one in the job itself", part=often.part
        ),
    )


def _message(one: RepeatedWork, often: Spread) -> str:
    if often.every > 1:
        return "this line computes the same values again and again between two steps: {cost_ms} per step ({cost_share})"
    if one.is_unchanged:
        return "this line computes the same values in every step: {cost_ms} per step ({cost_share})"
    if one.first_at is None:
        return "this line computes the same values more than once per step: {cost_ms} ({cost_share})"
    return "this line computes again what {first_at} has computed in the same step: {cost_ms} per step ({cost_share})"


def _reasoning(one: RepeatedWork, often: Spread) -> str:
    read = (
        "tensors that have not changed since the step before"
        if one.is_unchanged
        else "the same tensors as before, unchanged"
    )
    return (
        f"{{operators:operator}} {often.each}, most of the time {{names}}, read {read}, and draw no random numbers: "
        "{forward_ms}" + (", and {backward_ms} of the backward pass" if one.backward_ms > 0 else "")
    )


_KEPT = Fix(
    text="Compute it once per step, and keep the result in a variable for its other use.",
    code="logits = model(inputs)\n"
    "loss = criterion(logits, labels)\n"
    "hits = (logits.detach().argmax(1) == labels).sum()  # not of model(inputs) again",
    risk="The result, and what autograd keeps for it, stays in memory until its last use.",
)
_BEFORE = Fix(
    text="Compute it once for all batches of the evaluation, and keep the result until its end.",
    code="items = model.encode(catalogue)  # once, before the loop over batches\n"
    "for users in loader:\n    scores = model.encode(users) @ items.T",
    risk="The result stays in memory meanwhile.",
)
_ONCE = Fix(
    text="Compute it once before the loop, and again only where something that it reads changes.",
    code="adjacency = normalised(edges)  # before the loop, or as a buffer of the model\n"
    "for inputs, labels in loader:\n    output = model(inputs, adjacency)",
    risk="What it reads must stay as it is: where real data are to take the place of a constant batch, it will not.",
)
