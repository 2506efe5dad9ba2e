"""The model's state, tensor by tensor in every step: to average the weights, or to keep the best."""

from __future__ import annotations

from typing import Protocol

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Line, Step

from .._shared.lines import function, key, places


class StateLimits(Protocol):
    """The thresholds that concern it."""

    @property
    def loop_share(self) -> float: ...
    @property
    def least_runs(self) -> int: ...
    @property
    def error_share(self) -> float: ...


_CALLS = ("_save_to_state_dict", "_load_from_state_dict")
_SAVED = (0.5, 0.95)
"""Of going through the state of a model, by a foreach operator in place, or by doing it rarely."""


def lines_of(step: Step, lines: tuple[Line, ...], limits: StateLimits) -> tuple[Line, ...]:
    """Lines outside the model's passes that take its state or put it back, and the loops over it beside them; none
    where they cost little."""
    outside = [line for line in lines if line.part == "other"]
    taking = [line for line in outside if any(name in line.site.via for name in _CALLS)]
    functions = {function(line.site) for line in taking}
    same = {key(line.site) for line in taking}

    def belongs(line: Line) -> bool:
        is_loop = line.runs_per_step >= limits.least_runs and not line.site.via.startswith("torch/nn/")
        return key(line.site) in same or (is_loop and function(line.site) in functions)

    found = tuple(line for line in outside if belongs(line))
    return found if sum(line.ms_per_step for line in found) >= limits.loop_share * step.step_ms else ()


def finding(step: Step, lines: tuple[Line, ...], limits: StateLimits) -> Finding:
    """What `lines`, as `lines_of` gives them, cost."""
    cost = sum(line.ms_per_step for line in lines)
    cost_share = cost / step.step_ms
    low, high = (fraction * cost for fraction in _SAVED)
    return Finding(
        id="PD10.state-copies",
        severity=severity(cost_share, limits.loop_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="every step goes through the model's `state_dict`, tensor by tensor: {cost_ms}, {cost_share} of the "
        "step",
        reasoning="it issues {ops:operator} a step outside forward, backward and optimizer, one tensor after another, "
        "to copy or to average weights",
        evidence=(
            milliseconds("cost_ms", cost, "per step"),
            share("cost_share", cost_share, "of the step"),
            Measurement("ops", round(sum(line.ops_per_step for line in lines)), "count", "operators per step"),
            Measurement("lines", places(lines), "text", "its lines"),
        ),
        location=location(max(lines, key=lambda line: line.ms_per_step).site),
        fix=Fix(
            text="Average the parameters in place, all at once; copy the state only when it is to be kept, every so "
            "many steps.",
            code="with torch.no_grad():  # or torch.optim.swa_utils.AveragedModel, with its multi_avg_fn\n"
            "    torch._foreach_lerp_(averages, parameters, 1 - decay)",
            risk="Buffers (running statistics of batch norms) must be copied beside the parameters.",
        ),
        savings=savings(
            step,
            Part.OTHER,
            ceiling=cost,
            low=low,
            high=high,
            method="the lines' share of what passes outside the passes of the model; all tensors at once, or rarely, "
            "leave 5 to 50 %",
        ),
    )
