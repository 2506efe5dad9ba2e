"""Outputs that a trainer keeps for the metrics of an evaluation, joined anew with each batch."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    severity,
)
from perfdoctor.api.quantities import Evaluations, Evidence, Step

from .._shared.lines import told_trainer
from .evaluating import part_of, whole_ms
from .limits import Limits

_SAVED = (0.8, 1.3)
"""Of what joining takes: a class instead of a score for each is a hundredth of the bytes; and metrics that go through
all of them, and fresh memory for the rest of the evaluation, are not timed here."""


def outputs_kept(evidence: Evidence, step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """At most one."""
    kept = seen.collected
    if kept is None or seen.every_steps <= 0:
        return None
    per_step_ms, whole = kept.ms / seen.every_steps, whole_ms(step, seen)
    if per_step_ms < limits.min_share * whole:
        return None
    low, high = (fraction * per_step_ms for fraction in _SAVED)
    return Finding(
        id="PD20.outputs-kept",
        severity=severity(low / whole, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="the trainer joins {kept_bytes} of outputs in each evaluation: {kept_ms} of its {evaluation_ms}",
        reasoning="with each of {batches:batch} it copies the outputs of all batches before, every {every:step}; its "
        "forward passes take {forward_ms}",
        evidence=(
            Measurement("kept_bytes", kept.bytes, "bytes", "outputs kept, in an evaluation"),
            milliseconds("kept_ms", kept.ms, "joining them, in an evaluation"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            milliseconds("forward_ms", seen.forward_ms, "its forward passes"),
            Measurement("batches", round(seen.batches), "count", "batches of an evaluation"),
            Measurement("every", round(seen.every_steps), "count", "steps from one to the next"),
        ),
        location=location(told_trainer(evidence.job, kept.at, "compute_metrics")),
        fix=Fix(
            text="Keep what the metrics need of each batch, not scores of all classes or hidden states.",
            code="def classes(logits, labels):\n"
            "    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)\n\n"
            "Trainer(..., preprocess_logits_for_metrics=classes)  # no metrics: prediction_loss_only=True",
            risk="`compute_metrics` gets what the function returns: its own argmax must go. Of several outputs, "
            "`TrainingArguments(eval_do_concat_batches=False)` keeps all, and hands over a list.",
        ),
        savings=savings(step, low, high, "joining them, timed in the job itself", part=part_of(seen)),
    )
