"""Gradients that a backward pass fills and `zero_grad` takes away before anybody reads them."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.discarded_gradients import BACKWARD_LINE, GENERATOR_LINE, discarded
from perfdoctor.checks.optimizer import CHECK, examine
from samples import ids, only, with_

from perfdoctor.diagnosis.findings import Finding
from perfdoctor.evidence.model import Evidence, Missing, Site

HANDED = Site("gan.py", 33, "train")


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_a_graph_that_another_loss_needs_is_cut_off_where_its_result_is_handed_on() -> None:
    (first,) = discarded().discarded_gradients  # type: ignore[misc]
    finding = _found(with_(discarded(), discarded_gradients=(with_(first, handed_at=HANDED),)))
    assert finding.location is not None and finding.location.line == HANDED.line
    assert "critic(fake.detach())" in finding.fix.code


def test_a_loss_that_reaches_a_model_it_does_not_teach_is_found_where_that_is_called() -> None:
    finding = _found(discarded())
    assert finding.id == "PD17.discarded-gradients"
    assert finding.location is not None and finding.location.line == GENERATOR_LINE.line
    assert "detach()" in finding.fix.code
    assert finding.savings.low_ms == pytest.approx(0.85 * 4.0 + 0.2 * 1.0)
    assert finding.savings.high_ms == pytest.approx(1.15 * 4.0 + 0.5 * 1.0)


def test_where_the_pass_must_come_through_only_the_weights_part_is_saved_by_naming_parameters() -> None:
    finding = _found(discarded(whole_ms=0.3, part_ms=6.0))
    assert finding.location is not None and finding.location.line == BACKWARD_LINE.line
    assert "inputs=" in finding.fix.code and "detach" not in finding.fix.code
    assert finding.savings.high_ms < 0.6 * 6.3


def test_of_a_pass_whose_gradients_are_all_zeroed_nothing_is_cut_off() -> None:
    finding = _found(discarded(useless=True))
    assert "no gradient that they fill is read" in finding.reasoning
    assert finding.location is not None and finding.location.line == BACKWARD_LINE.line


@pytest.mark.parametrize(("whole_ms", "count"), [(0.0, 0), (0.8, 0), (1.0, 1)])
def test_they_count_from_a_twentieth_of_the_step_on(whole_ms: float, count: int) -> None:
    assert len(ids(examine(discarded(whole_ms=whole_ms), CHECK.limits))) == count


def test_each_line_is_a_finding_of_its_own() -> None:
    (first,) = discarded().discarded_gradients  # type: ignore[misc]
    both = discarded(with_(first, called_at=None, whole_ms=2.0))
    assert ids(examine(both, CHECK.limits)) == ["PD17.discarded-gradients"] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"discarded_gradients": ()},
        {"discarded_gradients": Missing("the window was not reached")},
        {"step__boundary": "backward"},
    ],
    ids=["every gradient is read", "not seen", "no optimizer"],
)
def test_nothing_thrown_away_and_nothing_seen_are_no_finding(changes: dict[str, Any]) -> None:
    assert ids(examine(with_(discarded(), **changes), CHECK.limits)) == []


def test_they_are_told_in_a_job_that_compiles_too() -> None:
    unwatched = with_(discarded(), call_sites=Missing("the job compiles"))
    assert ids(examine(unwatched, CHECK.limits)) == ["PD17.discarded-gradients"]
