"""Activation checkpointing where there is memory enough for the activations."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.lines import forward_line, told_trainer
from .._shared.wording import in_words_of
from .limits import Limits

_WAY = "without checkpointing"
"""In which whole passes were made again."""


def needless_checkpointing(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """By whole passes that were made again with activations kept."""
    ops = evidence.ops
    if isinstance(ops, Missing) or isinstance(ops.ways, Missing):
        return None
    saved = tried(step, ops, _WAY)
    if saved is None or saved < limits.min_share * step.step_ms:
        return None
    ways, cost = ops.ways, Cost(step, saved)
    return Finding(
        id="PD08.needless-checkpointing",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="activation checkpointing computes layers a second time: {cost_ms} per step ({cost_share})",
        reasoning="forward and backward were made again after the last step, as they are in {now_ms} and without "
        "checkpointing in {kept_ms}; they then keep {kept_bytes}, for which there is room",
        evidence=(
            *cost.measured("what computing them again costs"),
            milliseconds("now_ms", ways.now_ms, "forward and backward as they are"),
            milliseconds("kept_ms", dict(ways.times)[_WAY], "with activations kept"),
            Measurement("kept_bytes", ways.kept_bytes, "bytes", "kept for the backward pass then"),
        ),
        location=location(told_trainer(evidence.job, forward_line(evidence), "gradient_checkpointing")),
        fix=Fix(
            text="Keep the activations: checkpoint no layer, or only those that the memory has no room for.",
            code=in_words_of(
                evidence.job,
                "model.gradient_checkpointing_disable()  # or without checkpoint(...) around the layers",
                transformers="TrainingArguments(..., gradient_checkpointing=False)",
            ),
            risk="More memory while training; on another machine, or with a larger batch, it may not fit.",
            remedies=("memory.keep-activations",),
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "whole forward and backward passes made again without checkpointing after the last step",
        ),
    )
