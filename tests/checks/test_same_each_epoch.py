"""PD10 on what is made of each sample anew in each epoch."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.aside import BACKBONE, same_each_epoch
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import healthy, number, with_

from perfdoctor.diagnosis.findings import Finding, Location, Severity
from perfdoctor.evidence.model import Evidence, Missing, SamplesAsked, StepGrowth


def _found(evidence: Evidence) -> list[Finding]:
    return [one for one in examine(evidence, CHECK.limits).findings if one.id == "PD10.same-each-epoch"]


def test_it_is_an_opportunity_that_saves_what_these_operators_take() -> None:
    (finding,) = _found(same_each_epoch())
    assert finding.severity is Severity.NOTE
    assert finding.location == Location("train.py", 35, "main")
    assert finding.savings.low_ms < 8.0 < finding.savings.high_ms
    assert number(finding, "all_bytes") == 10_000_000


def test_all_lines_are_told_together_at_the_dearest() -> None:
    lines = (BACKBONE, with_(BACKBONE, forward_ms=2.0))
    (finding,) = _found(same_each_epoch(lines=lines))
    assert finding.location == Location("train.py", 35, "main")
    assert number(finding, "cost_ms") == pytest.approx(10.0)


def test_rows_of_a_tensor_in_memory_need_no_loader() -> None:
    (finding,) = _found(same_each_epoch(by_loader=False, rows=800, asked=SamplesAsked(0, False, 40_000)))
    assert number(finding, "samples") == 800


def test_reading_what_is_kept_takes_time_too() -> None:
    (light,), (heavy,) = (_found(same_each_epoch(bytes=size)) for size in (2_000, 100_000))
    assert heavy.savings.high_ms == pytest.approx(light.savings.high_ms - 0.3e-6 * 98_000 * 32)


ONE_EPOCH = StepGrowth(Missing("steps have no trend"), planned_steps=150)


@pytest.mark.parametrize(
    "changes",
    [
        {"asked": SamplesAsked(0, False, 40_000)},
        {"asked": SamplesAsked(0, Missing("whole batches are asked for"))},
        {"loader": {"collate": "masked"}},
        {"loader": {"length": None}},
        {"bytes": 100_000_000},
        {"lines": (with_(BACKBONE, forward_ms=1.0),)},
        {"lines": ()},
    ],
    ids=["random", "not asked", "collated by the job", "no length", "too large", "little", "nothing"],
)
def test_samples_that_differ_and_what_is_not_worth_keeping_are_left_alone(changes: dict[str, Any]) -> None:
    assert not _found(same_each_epoch(**changes))


def test_a_job_of_one_epoch_and_one_that_nobody_looked_at_are_left_alone() -> None:
    assert not _found(with_(same_each_epoch(), growth=ONE_EPOCH))
    assert not _found(with_(healthy(), of_samples=None))
    assert not _found(with_(healthy(), of_samples=Missing("not seen")))
