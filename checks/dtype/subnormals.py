"""Numbers so small that the CPU computes them in microcode: values that have faded to nearly nothing."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Missing, SubnormalNumbers

from .case import Case

_RANGE = (0.7, 1.15)
"""Around what operators took less with such numbers taken for 0: copies are warmer in the caches than the job's own
tensors, and later steps hold fewer or more such numbers."""


def subnormal_numbers(case: Case) -> Finding | None:
    """By what they cost on this CPU: some compute them as fast as others."""
    seen = case.evidence.subnormals
    if seen is None or isinstance(seen, Missing):
        return None
    cost = Cost(case.step, seen.saved_ms)
    if cost.share < case.limits.min_share:
        return None
    low, high = (bound * seen.saved_ms for bound in _RANGE)
    return Finding(
        id="PD07.subnormal-numbers",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="subnormal numbers, which this CPU computes slowly, take {cost_ms} per step ({cost_share}), most in "
        f"the {_where(seen)}",
        reasoning="{met_ms} per step are spent in operators that meet numbers nearer to 0 than 1.2e-38 (float32), up "
        "to {numbers} of a tensor; {names} took that much less on copies of their arguments with such numbers taken "
        "for 0",
        evidence=(
            *cost.measured("because of subnormal numbers, per step"),
            milliseconds("met_ms", seen.met_ms, "in operators that meet any, per step"),
            share("numbers", seen.share, "of a tensor's numbers, the most that are subnormal"),
            Measurement("names", ", ".join(f"`{name}`" for name in seen.operators), "text", "the worst operators"),
            milliseconds("forward_ms", seen.forward_ms, "of it in the forward pass and between the passes"),
            milliseconds("backward_ms", seen.backward_ms, "of it in the backward pass"),
            milliseconds("optimizer_ms", seen.optimizer_ms, "of it in the optimizer's step"),
        ),
        location=location(seen.at),
        fix=Fix(
            text="Let the CPU take such numbers for 0: call this before anything is computed, because threads that run "
            "already keep their setting. If they come from dead units, vanishing gradients or weights that decay to "
            "nothing, look at those too.",
            code="import torch\n\ntorch.set_flush_denormal(True)  # first of all; also in worker processes",
            risk="Numbers nearer to 0 than 1.2e-38 become 0, so results are not the same to the last bit.",
        ),
        savings=savings(case.step, low, high, "the step's own operators, computed again on copies with flushing"),
    )


def _where(seen: SubnormalNumbers) -> str:
    parts = {"forward pass": seen.forward_ms, "backward pass": seen.backward_ms, "optimizer's step": seen.optimizer_ms}
    return max(parts, key=lambda name: parts[name])
