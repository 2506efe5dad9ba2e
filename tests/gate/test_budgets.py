"""Budgets that need no baseline."""

from __future__ import annotations

import pytest
from baselines import finding, launch

from perfdoctor.config.rules import Budget
from perfdoctor.gate.budgets import judge_budgets
from perfdoctor.gate.model import Assume, Metric, Verdict


@pytest.mark.parametrize(
    ("budget", "verdict"),
    [
        (Budget("syncs", "error", max=8), Verdict.REGRESSION),
        (Budget("syncs", "error", max=9), Verdict.PASS),
        (Budget("syncs", "error", min=10), Verdict.REGRESSION),
        (Budget("kernels", "error", max=9), Verdict.INCONCLUSIVE),
        (Budget("op:aten::item", "error", max=0), Verdict.INCONCLUSIVE),
        (Budget("PD04", "error"), Verdict.REGRESSION),
        (Budget("PD04.explicit-collect", "error"), Verdict.REGRESSION),
        (Budget("PD04.other", "error"), Verdict.PASS),
        (Budget("PD03", "error"), Verdict.PASS),
    ],
)
def test_each_budget_is_judged(budget: Budget, verdict: Verdict) -> None:
    (found,) = judge_budgets([budget], [launch(), launch()], [finding()])
    assert found.verdict is verdict
    assert found.gates


def test_an_operator_that_was_looked_for_and_not_found_was_not_called() -> None:
    counted = {**launch(), "aten_ops": Metric("aten_ops", "count", Assume.EXACT, 10.0)}
    (found,) = judge_budgets([Budget("op:aten::item", "error", max=0)], [counted], [])
    assert found.verdict is Verdict.PASS


def test_the_median_of_launches_counts_and_all_are_shown() -> None:
    (found,) = judge_budgets(
        [Budget("syncs", "error", max=9)], [launch(syncs=9), launch(syncs=9), launch(syncs=30)], []
    )
    assert found.verdict is Verdict.PASS
    assert "9, 9, 30" in found.reason


def test_warn_is_shown_only_and_off_is_not_there() -> None:
    (found,) = judge_budgets([Budget("syncs", "warn", max=1), Budget("PD04", "off")], [launch()], [finding()])
    assert found.verdict is Verdict.REGRESSION
    assert not found.gates
