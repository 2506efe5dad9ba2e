"""Absolute budgets: `[assert]` in the configuration, on any metric or check. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..config.rules import Budget
from ..diagnosis.findings import Finding
from ..evidence.model import Missing
from .compare import operators_were_counted
from .metrics import Metrics
from .model import BUDGET, Assume, Judgement, Metric, Verdict


def judge_budgets(
    budgets: Sequence[Budget], launches: Sequence[Metrics], findings: Sequence[Finding]
) -> tuple[Judgement, ...]:
    """One judgement for each budget; `warn` is shown and never fails. The median of several launches counts."""
    return tuple(
        _of_check(budget, findings) if budget.is_check else _of_metric(budget, launches)
        for budget in budgets
        if budget.level != "off"
    )


def _of_check(budget: Budget, findings: Sequence[Finding]) -> Judgement:
    matching = [f for f in findings if f.id == budget.name or f.id.partition(".")[0] == budget.name]
    return Judgement(
        BUDGET + budget.name,
        f"findings of {budget.name}",
        "count",
        Assume.EXACT,
        0,
        len(matching),
        Verdict.REGRESSION if matching else Verdict.PASS,
        f"budget: none{' – ' + ', '.join(f.id for f in matching) if matching else ''}",
        gates=budget.level == "error",
    )


def _of_metric(budget: Budget, launches: Sequence[Metrics]) -> Judgement:
    metrics = [launch[budget.name] for launch in launches if budget.name in launch]
    values = [one.value for one in metrics]
    numbers = [value for value in values if not isinstance(value, Missing)]
    metric = metrics[0] if metrics else Metric(budget.name, "count", Assume.INFO, Missing(""), budget.name)
    if not metrics and budget.name.startswith("op:") and operators_were_counted(launches):
        numbers = [0.0]
    limits = [f"at most {budget.max:g}"] if budget.max is not None else []
    limits += [f"at least {budget.min:g}"] if budget.min is not None else []
    after: float | Missing
    if numbers:
        after = median(numbers)
        broken = (budget.max is not None and after > budget.max) or (budget.min is not None and after < budget.min)
        verdict = Verdict.REGRESSION if broken else Verdict.PASS
        said = f"; measured {', '.join(f'{number:.4g}' for number in numbers)}"
    else:
        after = Missing(next((str(value) for value in values if isinstance(value, Missing)), "not measured"))
        verdict, said = Verdict.INCONCLUSIVE, f", but {after}"
    return Judgement(
        BUDGET + budget.name, metric.title, metric.unit, metric.assume, Missing("a budget"), after, verdict,
        f"budget: {' and '.join(limits)}{said}", gates=budget.level == "error",
    )  # fmt: skip
