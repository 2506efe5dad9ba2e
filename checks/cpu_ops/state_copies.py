"""The model's state, tensor by tensor in every step: to average the weights, or to keep the best."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location
from perfdoctor.api.quantities import Line, Step

from .._shared.lines import function, key, places
from .limits import Limits

_CALLS = ("_save_to_state_dict", "_load_from_state_dict")
_SAVED = (0.5, 0.95)
"""Of going through the state of a model, by a foreach operator in place, or by doing it rarely."""


def lines_of(step: Step, lines: tuple[Line, ...], limits: Limits) -> tuple[Line, ...]:
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


def state_copies(step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """What `lines`, as `lines_of` gives them, cost."""
    if not lines:
        return None
    cost = Cost(step, sum(line.ms_per_step for line in lines))
    return Finding(
        id="PD10.state-copies",
        severity=cost.severity(limits.loop_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="every step copies the model's `state_dict` tensor by tensor: {cost_ms} ({cost_share})",
        reasoning="it issues {ops:operator} per step outside forward, backward and optimizer, one tensor after "
        "another, to copy or to average weights",
        evidence=(
            *cost.measured(),
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
        savings=cost.savings(
            _SAVED,
            "the lines' share of the step outside the model's passes; all tensors at once, or rarely, leave 5 to 50 %",
            Part.OTHER,
        ),
    )
