"""Sequences that are padded to a length which none of their batch has."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Missing, Site

from .._shared.lines import function
from .._shared.wording import in_words_of
from .case import Case

_WAY = "without padding"
"""In which whole passes were made again."""


def padded(case: Case) -> Finding | None:
    """By whole passes that were made again on sequences as long as their batch needs."""
    step, ops, limits = case.step, case.ops, case.limits
    if isinstance(ops.ways, Missing) or ops.ways.length <= ops.ways.needed:
        return None
    saved = tried(step, ops, _WAY)
    if saved is None or saved < limits.padding_share * step.step_ms:
        return None
    ways, cost = ops.ways, Cost(step, saved)
    return Finding(
        id="PD05.padded-batches",
        severity=cost.severity(limits.padding_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="sequences are padded to {length}, and the longest of their batch has {needed}: {cost_ms} per step "
        "({cost_share}) for padding",
        reasoning="in a batch that was kept, the same number stands at the end of every row from there on; forward and "
        "backward were made again after the last step, as they are in {now_ms} and without that end in {cut_ms}",
        evidence=(
            *cost.measured("what padding costs"),
            Measurement("length", ways.length, "count", "steps of a sequence, padding included"),
            Measurement("needed", ways.needed, "count", "steps of the longest one in its batch"),
            milliseconds("now_ms", ways.now_ms, "forward and backward as they are"),
            milliseconds("cut_ms", dict(ways.times)[_WAY], "without the padding that no sequence needs"),
        ),
        location=location(_place(case)),
        fix=Fix(
            text="Pad each batch to its own longest sequence, where it is collated; with samples of like length "
            "together there is less still.",
            code=in_words_of(case.evidence.job, _PLAIN, transformers=_TRANSFORMERS),
            risk="Shapes change from batch to batch, which compiled code is compiled again for: pad to the next "
            "multiple of 64 there. A model that averages over padding gives other results.",
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "whole forward and backward passes made again on a batch without its padding, after the last step",
        ),
    )


def _place(case: Case) -> Site | Missing | None:
    """Where padding is asked of a library; else where batches are padded: the line that says to what length, or the
    dearest line of the user's `collate_fn`, or of what comes before it."""
    loader, asked = case.loader, case.evidence.job.option("pad_to_multiple_of", "padding")
    if asked is not None:
        return asked
    if loader is None or isinstance(loader.maker, Missing):
        return case.place if loader is None else loader.site
    if not isinstance(loader.padder, Missing):
        return loader.padder
    lines = () if isinstance(case.evidence.code_lines, Missing) else case.evidence.code_lines
    own = [line for line in lines if line.called and function(line.site) == function(loader.maker)]
    return max(own, key=lambda line: line.ms_per_step).site if own else loader.maker


_PLAIN = (
    "def collate(samples):\n"
    "    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=0)\n"
    "loader = DataLoader(..., collate_fn=collate)  # in place of padding each sample in the data set"
)
_TRANSFORMERS = (
    "tokenizer(texts, truncation=True)  # no padding='max_length' here\n"
    "Trainer(..., data_collator=DataCollatorWithPadding(tokenizer))"
)
