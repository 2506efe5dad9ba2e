"""Derivatives of the same outputs that are asked for one after the other."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, SingleDerivatives, Step

from .limits import Limits

_AGAIN = (0.85, 1.0)
"""Of what one pass for all was timed to take less."""
_GRAPH = (1.0, 2.0)
"""Times as long as the derivatives took is the backward pass through a graph of them, which is there once for each call
too: a product of matrices has one or two others for it."""


def single_derivatives(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """For each line; none where each output is gone through once, or the rest costs little."""
    seen = () if isinstance(evidence.derivatives, Missing) else evidence.derivatives
    found = (_finding(step, one, limits) for one in seen)
    return tuple(one for one in found if one is not None)


def _finding(step: Step, one: SingleDerivatives, limits: Limits) -> Finding | None:
    low, high = (again * one.saved_ms * (1 + graph * one.created) for again, graph in zip(_AGAIN, _GRAPH, strict=True))
    cost = Cost(step, min((low + high) / 2, step.step_ms))
    if low < limits.derivatives_share * step.step_ms:
        return None
    return Finding(
        id="PD17.derivatives-one-by-one",
        severity=cost.severity(limits.derivatives_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="`torch.autograd.grad` goes through the same graph again for each derivative: {cost_ms} per step "
        "({cost_share})",
        reasoning="{calls:call} per step ask for derivatives of outputs of which others were asked for before; they "
        "take {spent_ms}, and in one pass with those before them {saved_ms} less"
        + ("; the graphs that they record are gone through again by the backward pass" * one.created),
        evidence=(
            *cost.measured(),
            Measurement("calls", one.calls_per_step, "count", "calls that could be part of an earlier one, per step"),
            milliseconds("spent_ms", one.ms_per_step, "in these calls, per step"),
            milliseconds("saved_ms", one.saved_ms, "less in one pass with those before them, as timed"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Ask for all derivatives of an output in one call.",
            code="u_t, u_x, u_y = torch.autograd.grad(u, (t, x, y), torch.ones_like(u), create_graph=True)",
            risk="None: the numbers are the same.",
        ),
        savings=savings(
            step,
            low,
            high,
            "passes through the job's own graphs, one by one and together"
            + ("; the backward pass through what they record, one to two times as long" * one.created),
        ),
    )
