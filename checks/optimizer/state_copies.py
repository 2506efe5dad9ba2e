"""The model's state, tensor by tensor in every step: to average the weights, or to keep the best."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location
from perfdoctor.api.quantities import Line, Step

from .._shared.lines import places
from .._shared.parameters import is_deep_copy
from .limits import Limits

_SAVED = (0.5, 0.95)
"""Of going through the state of a model, by a foreach operator in place, or by doing it rarely."""


def state_copies(step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """What `lines`, as `state_lines` gives them, cost."""
    if not lines:
        return None
    cost = Cost(step, sum(line.ms_per_step for line in lines))
    copied = "model, `copy.deepcopy`," if any(map(is_deep_copy, lines)) else "model's `state_dict`"
    if cost.share < limits.state_share:
        return None
    return Finding(
        id="PD17.state-copies",
        severity=cost.severity(limits.state_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message=f"every step copies the {copied} tensor by tensor: {{cost_ms}} ({{cost_share}})",
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
