"""A wait of which no cause is known."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement

from .waiting import Case


def unexplained(case: Case, reasoning: str, *extra: Measurement) -> Finding:
    """The whole wait is the bound."""
    return case.finding(
        "input-wait",
        "",
        reasoning,
        Fix(
            text="Time the data set's `__getitem__`, `collate_fn` and the sampler where they run.",
            remedies=("etl.replay",),
        ),
        "upper bound only: the whole wait",
        low=0.0,
        high=case.wait,
        extra=extra,
        confidence=Confidence.LOW,
    )
