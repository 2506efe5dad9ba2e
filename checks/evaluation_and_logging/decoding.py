"""Sequences that are written without a cache: each new token costs a pass through all that was written before it."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds, savings, severity
from perfdoctor.api.quantities import Evidence, Missing, Step

from .evaluating import part_of, whole_ms
from .limits import Limits

_SAVED = (0.4, 0.95)
"""Of these passes: with a cache each has one token to compute instead of all, and still launches every operator and
reads every weight."""


def without_cache(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """By forward passes that were each given what the one before was given, and one token more."""
    seen = evidence.decoding
    if seen is None or isinstance(seen, Missing):
        return None
    low, high = (fraction * seen.ms_per_step for fraction in _SAVED)
    whole = whole_ms(step, seen)
    if low < limits.min_share * whole:
        return None
    return Finding(
        id="PD20.decoding-without-cache",
        severity=severity(low / whole, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="sequences are written without a cache: {passes:forward pass}, {ms} every {every:step}",
        reasoning="each of these passes was given all that the one before it was given, and one token more; with the "
        "keys and values of earlier tokens kept it needs the new one alone",
        evidence=(
            Measurement("passes", round(seen.passes), "count", "such passes, in a step that holds some"),
            milliseconds("ms", seen.ms_per_step * seen.every_steps, "in them, from one such step to the next"),
            Measurement("every", max(1, round(seen.every_steps)), "count", "steps from one to the next"),
            milliseconds("per_step_ms", seen.ms_per_step, "in them, per step"),
        ),
        location=location(seen.at),
        fix=Fix(
            text="Keep keys and values of earlier tokens, and give the model the new token alone.",
            code="model.generate(..., use_cache=True)\n"
            "out = model(token, past_key_values=cache, use_cache=True)  # in a loop of one's own",
            risk="Keys and values take memory; sums are added in another order, so that a choice between two tokens "
            "that are as likely may fall otherwise.",
        ),
        savings=savings(
            step, low, high, "the passes that were timed, less a new token's own part of them", part=part_of(seen)
        ),
    )
