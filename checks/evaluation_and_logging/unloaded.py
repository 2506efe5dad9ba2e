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


_LARGER_PART = 8.0
"""Times as long as on a single sample that a part of a model takes for a batch, at most: GRUs, Linear layers and
embeddings of a width of 64 to 256 took 1.0 to 5.4 times as long for 64 rows, those of 512 1.7 to 9.4 times."""


def small_passes(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """An opportunity: whether passes need what the ones before them made, as an agent's do, is not known."""
    seen, samples = evidence.unloaded_passes, trained_on(evidence, step)
    if seen is None or isinstance(seen, Missing) or seen.samples * _FEWER > samples:
        return None
    times = samples / seen.samples
    # A pass on as many samples as training's takes no longer than training's, and no less than one on a few. A model
    # whose parts the loop calls one by one has several in a step.
    each_ms, training_ms = seen.ms / seen.passes, step.parts.forward / max(1.0, step.micro_batches)
    larger_ms = _LARGER_PART * each_ms if seen.of_parts else max(each_ms, training_ms)
    low = max(0.0, seen.ms - seen.passes / times * larger_ms) / seen.every_steps
    high = seen.ms * (1 - 1 / times) / seen.every_steps
    if low < limits.min_share * (step.step_ms + step.irregular_ms):
        return None
    return Finding(
        id="PD20.small-passes",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="evaluation gives the model {samples:sample} at a time: "
        + ("{passes:call of its parts|calls of its parts}" if seen.of_parts else "{passes:forward pass}")
        + ", {ms} every {every:step}",
        reasoning="a forward pass of training has {training_samples:sample} and takes {training_ms}; these "
        + ("parts are called by a method of the model's own, " if seen.of_parts else "passes are made ")
        + "in evaluation mode, and no loader makes their batches",
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
