"""What an optimizer's update was timed to take, and what that says of the job."""

from __future__ import annotations

from perfdoctor.api.findings import Location, location
from perfdoctor.api.quantities import Evidence, Line, Missing, UpdateTiming

SLOWER = 1.1
"""Another way is worth a finding when it beats the job's by a tenth, measured."""
WARM = 0.7
"""Of the saving that was timed: in the job, gradients and states come from further away than in a repetition."""


def update_timing(evidence: Evidence) -> UpdateTiming | Missing:
    return evidence.ops if isinstance(evidence.ops, Missing) else evidence.ops.update


def saved_ms(spent: float, timing: UpdateTiming, ms: float) -> float:
    """Of `spent`, the optimizer's part of a step, another way that was timed to take `ms`. By the ratio, but no less
    than what was timed remains: in a repetition the loop may have to fault its memory in."""
    return min(spent * (1 - ms / timing.now_ms), spent - ms / timing.part)


def made_at(evidence: Evidence, lines: tuple[Line, ...]) -> Location | None:
    """Where the optimizer is made; else where it takes longest."""
    made_at = None if isinstance(evidence.ops, Missing) else evidence.ops.optimizer_at
    steps = max((line for line in lines if line.part == "optimizer"), key=lambda line: line.ms_per_step, default=None)
    return location(made_at or (steps.site if steps is not None else None))
