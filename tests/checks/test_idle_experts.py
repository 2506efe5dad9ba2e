"""Experts that compute all rows for a router that lets few of them through."""

from __future__ import annotations

import pytest
from ill_runs.network import HEADS_LINE, idle_experts, one_by_one
from perfdoctor.checks.network import CHECK
from samples import asked, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_what_the_passes_take_without_the_other_rows_is_worth_that_share_of_them() -> None:
    run = idle_experts()
    finding = found(run)
    assert finding.id == "PD09.idle-experts"
    assert finding.location is not None and finding.location.line == HEADS_LINE.line
    passes = run.step.parts.forward + run.step.parts.backward  # type: ignore[union-attr]
    assert finding.savings.low_ms == pytest.approx(passes * (1 - 1.1 * 0.5))
    assert finding.savings.high_ms == pytest.approx(passes * (1 - 0.9 * 0.5))
    assert number(finding, "live") == pytest.approx(0.125)


@pytest.mark.parametrize(("routed_ms", "severity"), [(1.0, Severity.ERROR), (7.0, Severity.WARNING)])
def test_it_is_judged_by_what_is_saved(routed_ms: float, severity: Severity) -> None:
    assert found(idle_experts(routed_ms)).severity is severity


def test_what_hardly_saves_is_left_alone() -> None:
    assert is_clear(examined(idle_experts(9.0)))


def test_experts_are_not_told_as_heads_too() -> None:
    both = with_(idle_experts(), ops__siblings=one_by_one().ops.siblings)  # type: ignore[union-attr]
    assert ids(examined(both)) == ["PD09.idle-experts"]
