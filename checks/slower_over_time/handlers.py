"""A handler that is added to a logger again and again, so that each record is written as often."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Step, StepGrowth

from .._shared.handlers import needless_ms, repeated_handlers
from .growth import Limits, in_the_end

_SAVED = 0.85
"""Of what all but one of them take in the mean: the first one is the dearest."""


def growing_handlers(evidence: Evidence, step: Step, growth: StepGrowth, limits: Limits) -> Finding | None:
    """Whether steps have become longer for it or not yet."""
    seen = repeated_handlers(evidence)
    if seen is None:
        return None
    (handlers, spent), needless = seen, needless_ms(evidence)
    found = handlers.found
    low, high = _SAVED * needless, needless
    if found.grows:
        high = max(high, in_the_end(step, growth, spent + needless, found.times, handlers.step))
    cost = Cost(step, low)
    if low < limits.min_share * step.step_ms:
        return None
    return Finding(
        id="PD15.repeated-handlers",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="logger {logger} has the same {kind} {times:time}, and each record is written as often: "
        "{cost_ms} ({cost_share})",
        reasoning="`addHandler` was called again, for the same file or stream, and no handler was removed; the lines "
        "that log took {logging_ms} per step in the mean" + (", and it becomes more" if found.grows else ""),
        evidence=(
            *cost.measured("all but one of them, per step"),
            Measurement("logger", found.logger, "text", "its name"),
            Measurement("kind", found.kind, "text", "class of the handler"),
            Measurement("times", found.times, "count", "times that the logger has it"),
            milliseconds("logging_ms", spent, "in lines that log, per step"),
        ),
        location=location(found.site),
        fix=Fix(
            text="Add the handler once, before the loop; or ask whether the logger has one.",
            code="logger = logging.getLogger(name)\nif not logger.handlers:\n    logger.addHandler(handler)",
            risk="Records that stood in the log several times stand in it once.",
        ),
        savings=savings(
            step,
            low,
            high,
            "what all but one of the handlers take, by what the lines that log took; at most what that comes to over "
            "the whole loop",
            part=Part.OTHER,
        ),
    )
