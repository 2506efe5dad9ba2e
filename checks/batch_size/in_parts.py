"""Modules that a loop calls with one part of a batch, or of a sequence, after the other."""

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
from perfdoctor.api.quantities import InParts, Missing

from .._shared.lines import key
from .._shared.run_again import passes_cost, saved
from .case import Case

_OWN = 0.3
"""Of a module's time, in operators of a line: forwards alone is a third."""


def in_parts(case: Case) -> tuple[Finding, ...]:
    """One for each module of which a call with all parts at once is known to save enough."""
    return present(*(_finding(case, one) for one in case.ops.in_parts if not _is_of_the_line(case, one)))


def _is_of_the_line(case: Case, one: InParts) -> bool:
    """Whether the line of the loop issues most of its operators itself, by way of modules of torch: a loop over
    elements, which PD10 tells."""
    lines = () if isinstance(case.evidence.hot_lines, Missing) else case.evidence.hot_lines
    return sum(line.ms_per_step for line in lines if key(line.site) == key(one.at)) > _OWN * one.milliseconds


def _saved(one: InParts, cost: Cost) -> tuple[float, float]:
    """Milliseconds per step: by as many parts at once as were timed, and by all of them, where each one more takes
    what the last ones did."""
    *_, (fewer, fewer_ms), (most, most_ms) = one.times
    once_ms, calls = one.times[0][1], max(one.calls_per_step, most)
    at_once_ms = most_ms + (calls - most) * max(0.0, (most_ms - fewer_ms) / (most - fewer))
    return saved(cost, most * once_ms, most_ms)[0], saved(cost, calls * once_ms, at_once_ms)[1]


def _finding(case: Case, one: InParts) -> Finding | None:
    step, cost = case.step, passes_cost(case.step, one.milliseconds)
    low, high = _saved(one, cost)
    if low < case.limits.min_share * step.step_ms:
        return None
    most, most_ms = one.times[-1]
    return Finding(
        id="PD05.called-in-parts",
        severity=case.severity(low, case.limits.parts_warning_share),
        confidence=Confidence.MEDIUM,
        message="{calls:time} per step, {layer} is called for one part after the other: {cost_ms} ({cost_share})",
        reasoning="no iteration of the loop needs the one before; {together:part} at once take {together_ms}, one "
        "takes {once_ms}, forwards and backwards, timed after the last step",
        evidence=(
            *cost.measured("in this module and all that it holds"),
            Measurement("layer", one.name or one.kind, "text", "the module"),
            Measurement("calls", one.calls_per_step, "count", "calls per step"),
            Measurement("loop", one.loop, "text", "the loop"),
            Measurement("together", most, "count", "parts at once, as timed"),
            milliseconds("together_ms", most_ms, "a call with these"),
            milliseconds("once_ms", one.times[0][1], "a call with one"),
        ),
        location=location(one.at),
        fix=Fix(
            text=f"Join the parts of `{one.loop}` in their first dimension, call the module once, and take what it "
            "returns apart.",
            code="features = self.encoder(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])\n"
            "# not torch.stack([self.encoder(clips[:, t]) for t in range(clips.shape[1])], dim=1)",
            risk="Batch normalisation takes its statistics of all parts together, and dropout draws other masks.",
        ),
        savings=savings(
            step,
            low,
            high,
            "the module's own passes, run again with one part and with several at once",
        ),
    )
