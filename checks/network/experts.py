"""Experts that compute all rows, though a router lets through few of what each makes."""

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
    share,
)
from perfdoctor.api.quantities import Experts, Missing

from .._shared.run_again import saved
from .case import Case


def idle_experts(case: Case) -> tuple[Finding, ...]:
    """One for each such set of which passes with few rows are known to save enough."""
    ops = case.evidence.ops
    return () if isinstance(ops, Missing) else present(*(_finding(case, one) for one in ops.experts))


def _finding(case: Case, one: Experts) -> Finding | None:
    step = case.step
    passes = Cost(step, step.parts.forward + step.parts.backward)
    low, high = saved(passes, one.now_ms, one.routed_ms)
    cost = Cost(step, (low + high) / 2)
    if cost.share < case.limits.min_share:
        return None
    return Finding(
        id="PD09.idle-experts",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="{members:layer} like {layer} compute all rows; {live} count: {cost_ms} per step ({cost_share})",
        reasoning="all are given the same rows, and what most of them give for a row is multiplied by zero or never "
        "picked; with each on its rows alone the passes take {routed_ms}, as they are {now_ms}, forwards and "
        "backwards, timed after the last step, and give the same numbers",
        evidence=(
            Measurement("layer", one.name or one.kind, "text", "the first of them"),
            *cost.measured("in rows that do not count"),
            Measurement("members", one.members, "count", "experts"),
            share("live", one.live, "of their rows that count"),
            milliseconds("routed_ms", one.routed_ms, "the model's passes with each on its rows alone"),
            milliseconds("now_ms", one.now_ms, "the model's passes as they are"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Give each expert the rows that the router picked it for, and put what it makes in their places.",
            code="out = torch.zeros_like(x)\n"
            "for number, expert in enumerate(experts):\n"
            "    rows, place = (picked == number).nonzero(as_tuple=True)  # picked: (rows, experts per row)\n"
            "    out = out.index_add(0, rows, weight[rows, place, None] * expert(x.index_select(0, rows)))",
            risk="Batches of an expert differ in length from step to step: a compiled model needs `dynamic=True`.",
        ),
        savings=savings(
            step, low, high, "the model's own passes, run again as they are and with each expert on its rows alone"
        ),
    )
