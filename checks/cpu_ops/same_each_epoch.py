"""Operators in the loop that make of each sample what they made of it in the epoch before."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    savings,
)
from perfdoctor.api.quantities import Evidence, Loader, Missing, SamplesAsked, SampleWork, Step

from .._shared.aside import measured, saved_ms
from .._shared.samples import comes_again, fits, free_bytes
from .limits import Limits

_COLLATES = ("default_collate", "default_convert")
"""Functions that make a batch of samples and put nothing to it."""
_FETCHED_MS = 0.3e-6
"""A byte that is kept is read instead: at 3 GB a second, with an index."""


def same_each_epoch(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for all lines, at the dearest: what they make is kept together. It is an opportunity: that takes memory, and
    samples that are changed at random would be another way to train."""
    work = evidence.of_samples
    if work is None or isinstance(work, Missing) or not work.lines:
        return ()
    length = _length(evidence, work)
    if not length or not comes_again(evidence, work.batch, length) or not fits(evidence, work.bytes * length):
        return ()
    made = [saved_ms(one) for one in work.lines]
    fetched_ms = _FETCHED_MS * work.bytes * work.batch
    low, high = (max(0.0, sum(side) - fetched_ms) for side in zip(*made, strict=True))
    if low < limits.repeated_share * step.step_ms:
        return ()
    return (_finding(evidence, step, work, length, (low, high)),)


def _length(evidence: Evidence, work: SampleWork) -> int:
    """Samples in all; 0 where a loader may give others in the next epoch."""
    if not work.by_loader:
        return work.rows
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    drawn = [one for one in loaders if one.steady_batches_per_step > 0]
    return max((one.length or 0 for one in drawn), default=0) if all(map(_gives_the_same, drawn)) else 0


def _gives_the_same(loader: Loader) -> bool:
    asked = loader.again
    return isinstance(asked, SamplesAsked) and asked.same is True and loader.collate in _COLLATES


def _finding(evidence: Evidence, step: Step, work: SampleWork, length: int, saved: tuple[float, float]) -> Finding:
    dearest, cost = work.lines[0], Cost(step, sum(one.forward_ms for one in work.lines))
    return Finding(
        id="PD10.same-each-epoch",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="each epoch computes the same of every sample again: {cost_ms} per step ({cost_share})",
        reasoning="{operators:operator} here, most of the time {names}, read nothing but samples that are the same in "
        "each epoch and tensors that did not change until the job's end, draw no random numbers, and have no graph; "
        "what is made of all {samples:sample} would take {all_bytes}, of {free_bytes} free",
        evidence=(
            *cost.measured("in such operators, per step"),
            *measured(dearest),
            Measurement("lines", len(work.lines), "count", "lines with such operators"),
            Measurement("samples", length, "count", "samples in all"),
            Measurement("all_bytes", work.bytes * length, "bytes", "of what is made of them and used"),
            Measurement("free_bytes", free_bytes(evidence), "bytes", "of memory that is free"),
        ),
        location=location(dearest.at),
        fix=Fix(
            text="Compute it once for all samples before the first epoch, keep it, and train on that.",
            code="with torch.no_grad():\n"
            "    features = torch.cat([backbone(images) for images, _ in DataLoader(dataset, batch_size=256)])\n"
            "loader = DataLoader(TensorDataset(features, labels), batch_size=64, shuffle=True)",
            risk="Random changes of the samples that are added later would be made once, too; what is to be trained "
            "later must be computed anew.",
        ),
        savings=savings(step, *saved, "operators of two steps, timed one by one in the job itself"),
    )
