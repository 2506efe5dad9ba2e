"""Forwards that wait for each other instead of running side by side: what all such findings have in common."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, location, milliseconds, savings, share
from perfdoctor.api.quantities import Missing, RequestTiming

from .concurrent_forwards import Forwards
from .limits import Limits
from .predictions import Prediction


def blocked_forwards(
    case: Forwards,
    limits: Limits,
    name: str,
    prediction: Prediction | None,
    whole: float,
    forward_ms: float,
    *,
    message: str,
    reasoning: str,
    beside_ms: float = 0.0,
) -> Finding | None:
    """The finding, if what its fix may save of `whole` (at best also of `beside_ms`) is worth one; what it is for
    takes `forward_ms` now."""
    if prediction is None or forward_ms <= 0:
        return None
    best, worst = (max(0.0, 1 - ms / forward_ms) for ms in (prediction.best_ms, prediction.worst_ms))
    saved = Cost(case.step, (whole + beside_ms) * best)
    if saved.share < limits.min_share:
        return None
    seen, timing = case.seen, case.seen.timing
    timed = not isinstance(timing, Missing)
    return Finding(
        id=f"PD06.{name}",
        severity=saved.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if timed and case.serving else Confidence.MEDIUM,
        message=message,
        reasoning=reasoning,
        evidence=(
            *case.shared(),
            milliseconds("least_ms", seen.least_cpu_ms, "CPU time of the fastest measured forward pass"),
            Measurement("waiters", round(seen.waiters, 1), "count", "threads that wait before the model"),
            share("occupied", seen.occupied_share, "of the time inside forward passes, all threads together"),
            *timed_operators(timing),
        ),
        location=location(seen.site),
        fix=prediction.fix,
        savings=savings(
            case.step,
            # Beside a training loop nobody knows what the loop does with a thread that is done earlier.
            whole * worst if case.serving else 0.0,
            saved.ms,
            prediction.method,
            ceiling=max(saved.ms, whole * case.blocked),
        ),
    )


def timed_operators(timing: RequestTiming | Missing) -> tuple[Measurement, ...]:
    """What one request and a batch of them take."""
    if isinstance(timing, Missing):
        return ()
    return (
        Measurement("copies", timing.copies, "count", "requests in the timed batch"),
        milliseconds("one_ms", timing.one_ms, "timed operators of one forward pass"),
        milliseconds("batch_ms", timing.batch_ms, "the same operators for the batch"),
    )
