"""Prints, progress bars and trackers in the training loop."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.handlers import needless_ms
from .limits import Limits

_LOGGED = (0.8, 0.98)
"""Of its cost: every fifth step to every fiftieth."""
_OF_TRAINER = "self."
"""How a module of Lightning's calls what logs."""


def logging(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """The dearest line speaks for all: what helps one helps the others. What a handler that is there several times
    takes, PD15 tells."""
    cost = Cost(step, step.parts.logging - needless_ms(evidence))
    lines = () if isinstance(evidence.logging, Missing) else evidence.logging
    if cost.share < limits.min_share or not lines:
        return None
    dearest, total = lines[0], sum(line.ms_per_step for line in lines)
    others = "" if dearest.ms_per_step > 0.9 * total else ", most of it in {logger}"
    return Finding(
        id="PD20.logging",
        severity=cost.severity(
            limits.trainer_share if dearest.name.startswith(_OF_TRAINER) else limits.min_share, limits.error_share
        ),
        confidence=Confidence.HIGH,
        message=("{logger}" if not others else "logging") + f" in the training loop takes {{cost_ms}} per step{others}",
        reasoning="each call was timed in the job itself: this line calls {logger} {calls:time} per step, "
        "{line_ms}, and the loop waits for it",
        evidence=(
            *cost.measured(),
            Measurement("logger", dearest.name, "text", "called"),
            Measurement("calls", dearest.calls_per_step, "count", "calls of the line per step"),
            milliseconds("line_ms", dearest.ms_per_step, "in that line, per step"),
        ),
        location=location(dearest.site),
        fix=Fix(
            text="Log every 50th step or so; a progress bar redraws rarely with `mininterval=5`.",
            code="if step % 50 == 0:\n    ...  # what logs",
            risk="Curves have fewer points.",
        ),
        savings=cost.savings(_LOGGED, "the calls' own time, at every fifth step to every fiftieth", Part.OTHER),
    )
