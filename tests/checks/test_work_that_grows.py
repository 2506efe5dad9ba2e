"""PD15 on operators that go through more numbers with each step."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.growth import expanding_window
from perfdoctor.checks.slower_over_time import CHECK, examine
from samples import healthy, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Finding, Location, Severity
from perfdoctor.evidence.model import Evidence, Missing


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_it_is_an_ill_at_its_line_by_what_it_takes_so_far() -> None:
    finding = _found(expanding_window())
    assert finding.id == "PD15.growing-work" and finding.severity is Severity.WARNING
    assert finding.location == Location("train.py", 44, "known_scale")
    assert number(finding, "cost_ms") == pytest.approx(5.0)
    assert finding.savings.low_ms < 5.0


def test_a_longer_loop_costs_more_at_most() -> None:
    unknown, short, long = (
        _found(expanding_window(planned_steps=planned)).savings.high_ms for planned in (0, 300, 1500)
    )
    assert short < unknown < long < 25.0
    # 5 of 25 ms in the middle of 200 steps; in that of 1,500, 7.5 times as many numbers: 37.5 of 57.5.
    assert long == pytest.approx(25.0 * 37.5 / 57.5, rel=0.05)


@pytest.mark.parametrize(("numbers", "cost_ms"), [(70_000, 5.0 * 105 / 70), (210_000, 2.5), (300_000, 5.0)])
def test_what_starts_anew_costs_what_it_does_in_the_middle_of_an_epoch(numbers: int, cost_ms: float) -> None:
    """Of 210 batches; a thousand numbers more with each."""
    finding = _found(expanding_window(planned_steps=1500, starts_anew=True, numbers=numbers))
    assert number(finding, "cost_ms") == pytest.approx(cost_ms)
    assert finding.savings.high_ms < 1.5 * cost_ms + 0.1, "however long the loop is"
    assert finding.message.endswith("({cost_share})") and finding.fix.text.startswith("Compute it once")


@pytest.mark.parametrize("changes", [{"forward_ms": 1.0}, {"growing_work": ()}, {"growing_work": Missing("not seen")}])
def test_little_and_what_was_not_seen_is_clear(changes: dict[str, Any]) -> None:
    few = {name: value for name, value in changes.items() if name == "growing_work"}
    ill = expanding_window(**{name: value for name, value in changes.items() if name not in few})
    assert is_clear(examine(with_(ill, **few), CHECK.limits))
    assert is_clear(examine(healthy(), CHECK.limits))
