"""Batches of sequences of very different lengths: the longest of each sets what all its others are padded to."""

from __future__ import annotations

from perfdoctor.api.causes import tried
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
from perfdoctor.api.quantities import Missing

from .._shared.lines import told_trainer
from .._shared.wording import in_words_of
from .case import Case

_WAY = "of like length"
"""In which whole passes were made again."""
_NO_PADDING = "without padding"
"""Saves its part without another order of the samples, and is told by itself."""
_SAVED = (0.6, 1.0)
"""Of what passes on sequences of the mean length save: batches have long sequences too, which cost more than as many
short ones save where attention grows with the square; and no batch is of one length."""


def mixed_lengths(case: Case) -> Finding | None:
    """By whole passes that were made again on sequences as long as those of their batch are on average."""
    evidence, step, ops = case.evidence, case.step, case.ops
    if isinstance(ops.ways, Missing) or not ops.ways.mean_length:
        return None
    whole = tried(step, ops, _WAY)
    if whole is None:
        return None
    saved = whole - max(0.0, tried(step, ops, _NO_PADDING) or 0.0)
    if _SAVED[0] * saved < case.limits.padding_share * step.step_ms:
        return None
    ways, cost = ops.ways, Cost(step, saved)
    return Finding(
        id="PD05.mixed-lengths",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="sequences of a batch are padded to {batch_length}, and have {mean_length} on average: {cost_ms} per "
        "step ({cost_share})",
        reasoning="in a batch that was kept, rows end in the same number from very different places on; forward and "
        "backward were made again after the last step, as they are in {now_ms} and with rows of the mean length in "
        "{mean_ms}",
        evidence=(
            *cost.measured("what shorter sequences are padded for"),
            Measurement("batch_length", ways.batch_length, "count", "steps of a sequence, padding included"),
            Measurement("mean_length", ways.mean_length, "count", "steps of a sequence, on average"),
            milliseconds("now_ms", ways.now_ms, "forward and backward as they are"),
            milliseconds("mean_ms", dict(ways.times)[_WAY], "on sequences of the mean length"),
        ),
        location=location(
            told_trainer(
                evidence.job,
                case.place if case.loader is None else case.loader.site,
                "train_sampling_strategy",
                "group_by_length",
                "per_device_train_batch_size",
            )
        ),
        fix=Fix(
            text="Put samples of like length into a batch. Where a sampler does so already, look at the lengths it is "
            "given.",
            code=in_words_of(evidence.job, _PLAIN, transformers=_TRANSFORMERS),
            risk="Batches are less random: shuffle within groups of some hundred samples, and the batches themselves.",
        ),
        savings=savings(
            step,
            _SAVED[0] * saved,
            _SAVED[1] * saved,
            "whole passes made again on sequences of the mean length, after the last step",
        ),
    )


_PLAIN = (
    "order = sorted(range(len(dataset)), key=lambda i: len(dataset[i][0]))\n"
    "batches = [order[i : i + size] for i in range(0, len(order), size)]\n"
    "random.shuffle(batches)\n"
    "loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)"
)
_TRANSFORMERS = (
    "TrainingArguments(..., train_sampling_strategy='group_by_length')  # before version 5: group_by_length=True"
)
