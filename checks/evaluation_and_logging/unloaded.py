"""Evaluation without a loader, in forward passes on next to no samples each."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .evaluating import trained_on
from .limits import Limits

_FEWER = 4.0
"""Times as many samples in a pass of training."""


def small_passes(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """An opportunity: whether passes need what the ones before them made, as an agent's do, is not known."""
    seen, samples = evidence.unloaded_passes, trained_on(evidence, step)
    if seen is None or isinstance(seen, Missing) or seen.samples * _FEWER > samples:
        return None
    times = samples / seen.samples
    # A pass on as many samples as training's takes no longer than training's, and no less than one on a few.
    larger_ms = max(seen.ms / seen.passes, step.parts.forward)
    low = max(0.0, seen.ms - seen.passes / times * larger_ms) / seen.every_steps
    high = seen.ms * (1 - 1 / times) / seen.every_steps
    if low < limits.min_share * (step.step_ms + step.irregular_ms):
        return None
    return Finding(
        id="PD20.small-passes",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="evaluation gives the model {samples:sample} at a time: {passes:forward pass}, {ms} every {every:step}",
        reasoning="a forward pass of training has {training_samples:sample} and takes {training_ms}; these passes are "
        "made in evaluation mode, and no loader makes their batches",
        evidence=(
            Measurement("samples", seen.samples, "count", "samples in a pass of evaluation"),
            Measurement("training_samples", round(samples), "count", "samples in a pass of training"),
            Measurement("passes", round(seen.passes), "count", "passes of an evaluation"),
            milliseconds("ms", seen.ms, "in the passes of an evaluation"),
            milliseconds("training_ms", step.parts.forward, "the forward pass of a training step"),
            Measurement("every", max(1, round(seen.every_steps)), "count", "steps from one evaluation to the next"),
        ),
        location=location(seen.at),
        fix=Fix(
            text="Evaluate as many samples at a time as training does, series or episodes side by side too.",
            code=f"for rows in data.split({round(samples)}):  # not one by one\n    outputs = model(rows)",
            risk="Where a pass needs what the one before it has made (an agent in one world), there must be several "
            "worlds to be stepped together.",
        ),
        savings=savings(
            step,
            low,
            high,
            "passes that were timed: at least all but those on as many samples as training's, at training's time",
            part=Part.EPOCH,
        ),
    )
