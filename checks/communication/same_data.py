"""Ranks that each go through all of the data."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, savings

from .case import Case

_LEAST = 0.8
"""Of the steps that an epoch has too many: a job that trains for a number of steps has other data in them, and as many
steps."""


def same_data(case: Case) -> Finding | None:
    """Whether that is meant is not seen from here: an opportunity."""
    shared, ranks = case.together.shared_data, len(case.together.ranks)
    if shared is None:
        return None
    step = case.step
    saved_ms = (1 - 1 / ranks) * step.step_ms
    return Finding(
        id="PD19.same-data",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="each of {ranks:rank} goes through all {samples:sample} of its data set in an epoch",
        reasoning="the ranks' loaders have data sets of the same samples, and samplers that take all of them; an epoch "
        "takes {more:time} as many steps as it would if each rank took its part",
        evidence=(
            Measurement("ranks", ranks, "count", "ranks"),
            Measurement("more", ranks, "count", "times as many steps for an epoch"),
            Measurement("samples", shared.samples, "count", "samples in the data set"),
        ),
        location=location(shared.loader_at),
        fix=Fix(
            text="Give each rank its part of the samples.",
            code="sampler = DistributedSampler(dataset)  # shuffles; sampler.set_epoch(epoch) at the start of each\n"
            "loader = DataLoader(dataset, batch_size, sampler=sampler)  # without shuffle=True",
            risk="An epoch has fewer steps then: a schedule that counts steps ends early.",
        ),
        savings=savings(
            step,
            _LEAST * saved_ms,
            saved_ms,
            "by the number of ranks: as many samples take so many fewer steps",
            general=True,
            counted=True,
        ),
    )
