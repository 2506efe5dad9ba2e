"""Gradients of parameters that learn, zeroed before their optimizer's step: a loss reaches a model that it does not
teach."""

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
from perfdoctor.api.quantities import DiscardedGradients, Evidence, Missing, Step

from .limits import Limits

_WHOLE = (0.85, 1.15)
"""Of operators that lead to nothing else, around what they took in the steps that were followed."""
_PART = (0.2, 0.5)
"""Of operators that compute a gradient for a weight and one for what comes before it: each is up to half of them."""


def discarded_gradients(evidence: Evidence, step: Step, limits: Limits) -> list[Finding]:
    """For each line of backward passes and model; empty where every gradient is read, or they cost little."""
    seen = evidence.discarded_gradients
    if isinstance(seen, Missing) or step.boundary != "optimizer":
        return []
    return list(present(*(_finding(evidence, one, step, limits) for one in seen)))


def _finding(evidence: Evidence, one: DiscardedGradients, step: Step, limits: Limits) -> Finding | None:
    low, high = (whole * one.whole_ms + part * one.part_ms for whole, part in zip(_WHOLE, _PART, strict=True))
    cost = Cost(step, (low + high) / 2)
    if cost.share < limits.gradients_share:
        return None
    # Most of it in a model that this loss need not reach.
    cut_off = _WHOLE[0] * one.whole_ms >= low / 2 and not one.useless
    return Finding(
        id="PD17.discarded-gradients",
        severity=cost.severity(limits.gradients_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="`backward()` fills gradients of "
        + ("{parameters:tensor} that nobody reads" if one.bare else "{parameters:parameter} that are zeroed unread")
        + ": {cost_ms} per step ({cost_share})",
        reasoning=(
            "the passes of {backward_at} ({passes:pass} per step) reach tensors that are in no optimizer, and whose "
            "gradients nobody read in the steps that were watched"
            if one.bare
            else "the passes of {backward_at} ({passes:pass} per step) reach {module}, and `zero_grad()` comes before "
            "its optimizer's step"
        )
        + ("; no gradient that they fill is read" if one.useless else "")
        + "; {whole_ms} of them lead to nothing else, {part_ms} compute these beside gradients that are of use",
        evidence=(
            *cost.measured(),
            Measurement("parameters", one.parameters, "count", "parameters whose gradients are zeroed unread"),
            Measurement("elements", one.elements, "count", "their elements"),
            Measurement("passes", one.passes_per_step, "count", "such backward passes per step"),
            Measurement("module", f"`{one.module}`", "text", "the model"),
            Measurement("backward_at", str(one.at), "text", "the line of the passes"),
            milliseconds("whole_ms", one.whole_ms, "in operators that need not run, per step"),
            milliseconds("part_ms", one.part_ms, "in operators that need compute a part, per step"),
        ),
        location=location(one.recorded_at or ((one.handed_at or one.called_at) if cut_off else None) or one.at),
        fix=(_CUT if one.handed_at is None else _HANDED) if cut_off else _NAMED,
        savings=savings(
            step,
            low,
            high,
            "operators of the backward passes, timed one by one in the job itself",
            ceiling=high if evidence.on_cuda else min(high, step.parts.backward),
        ),
    )


_CUT = Fix(
    text="Cut the graph between the model and a loss that does not teach it.",
    code="fake = generator(noise).detach()  # or under torch.no_grad(), in the critic's turn",
    risk="None for what learns: these gradients were thrown away.",
)
_HANDED = Fix(
    text="Cut the graph off where its result is handed on: another loss needs it.",
    code="loss = critic(fake.detach())  # the generator's own loss goes on with `fake`",
    risk="None for what learns: these gradients were thrown away.",
)
_NAMED = Fix(
    text="Name the parameters that the next step updates, or switch the others off meanwhile: `requires_grad_(False)`.",
    code="loss.backward(inputs=list(generator.parameters()))  # not the critic's that it goes through",
    risk="None for the parameters that are named; `.grad` of the others is left as it was.",
)
