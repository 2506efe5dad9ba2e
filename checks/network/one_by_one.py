"""Layers of one class that are called one after the other, in a loop or as gates, though none needs another."""

from __future__ import annotations

from collections.abc import Collection

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Location,
    Measurement,
    Severity,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Missing, Siblings

from .._shared.run_again import passes_cost, saved
from .case import Case

_OF_MANY = (
    "q = self.query(x).unflatten(-1, (heads, width)).transpose(1, 2)  # all heads at once\n"
    "hidden = torch.baddbmm(self.bias, x.expand(members, -1, -1), self.weight)  # (members, in, out)"
)
_OF_GATES = "i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)  # one layer, four times as wide"


def layers_one_by_one(case: Case, told: Collection[Location | None]) -> tuple[Finding, ...]:
    """One for each loop of which one call with all weights is known to save enough, but for lines that were `told`. It
    is an opportunity: their weights have to be kept otherwise."""
    ops = case.evidence.ops
    some = () if isinstance(ops, Missing) else (one for one in ops.siblings if location(one.at) not in told)
    return present(*(_finding(case, one) for one in some))


def _finding(case: Case, one: Siblings) -> Finding | None:
    step = case.step
    cost = passes_cost(step, one.milliseconds)
    low, high = saved(cost, one.now_ms, one.stacked_ms)
    if low < case.limits.min_share * step.step_ms:
        return None
    return Finding(
        id="PD09.one-by-one",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="{members:layer} like {layer} are called one after the other: {cost_ms} per step ({cost_share})",
        reasoning="they have weights of the same shapes, and none needs what the one before gives; with all weights in "
        "one call they take {stacked_ms}, as they are {now_ms}, forwards and backwards, timed after the last step",
        evidence=(
            Measurement("layer", one.name or one.kind, "text", "the first of them"),
            *cost.measured("in all of them"),
            Measurement("members", one.members, "count", "layers in such a loop"),
            *((Measurement("loop", one.loop, "text", "the loop"),) if one.loop else ()),
            milliseconds("stacked_ms", one.stacked_ms, "one call with the weights of all"),
            milliseconds("now_ms", one.now_ms, "their calls one after the other"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Keep the weights of all in one layer: one wide Linear and a view for heads, `torch.baddbmm` for an "
            "ensemble, one wide layer whose outputs are taken apart for gates.",
            code=_OF_MANY if one.loop else _OF_GATES,
            risk="Checkpoints hold the weights layer by layer: stack them as they are loaded.",
        ),
        savings=savings(
            step, low, high, "the layers' own passes, run again one after the other and with all weights in one call"
        ),
    )
