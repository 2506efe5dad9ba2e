"""`[assert]`: absolute budgets, in every run that is judged."""

from __future__ import annotations

from collections.abc import Sequence

from ..config.rules import EXPECTED, Budget
from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError, did_you_mean
from ..exits import Exit, worst
from ..gate.metrics import COUNTED, NAMES
from .progress import say


def require_known_budgets(config: Config) -> None:
    """Raises PerfdoctorError for a budget on something that does not exist, or without what its kind needs."""
    from ..diagnosis.registry import discover

    codes = [entry.check.code for entry in discover()]
    for budget in config.budgets:
        place = f"`assert.{budget.name}` in {config.source}"
        is_metric, is_check = _is_metric(budget.name), budget.name.partition(".")[0] in codes
        if not is_metric and not is_check:
            raise PerfdoctorError(
                f"{place} is neither a metric nor a check{did_you_mean(budget.name, [*NAMES, *codes])}",
                slug="config-unknown-metric",
                advice=f"metrics: {', '.join(NAMES)}, op:NAME; checks: {', '.join(codes)}",
            )
        if is_check != budget.is_check:
            raise PerfdoctorError(
                f"{place} {'has limits, but is a check' if is_check else 'has neither max nor min'}",
                slug="config-wrong-budget",
                advice=f"Write {EXPECTED}.",
            )
    for metric in config.gate.counter_tolerance:
        if not _is_metric(metric):
            raise PerfdoctorError(
                f"unknown metric {metric} in a counter tolerance{did_you_mean(metric, NAMES)}",
                slug="config-unknown-metric",
                advice=f"metrics: {', '.join(NAMES)}, op:NAME",
            )


def _is_metric(name: str) -> bool:
    return name in NAMES or name.startswith("op:")


def needs_counters(budgets: Sequence[Budget]) -> bool:
    """Whether a budget is about what only the counters window sees."""
    return any(budget.name in COUNTED or budget.name.startswith("op:") for budget in budgets if budget.level != "off")


def keep_budgets(diagnosis: Diagnosis, config: Config) -> Exit:
    """One line on stderr for each budget that is not kept or cannot be judged; what the shell gets for it."""
    from ..gate.budgets import judge_budgets
    from ..gate.metrics import metrics
    from ..gate.model import Verdict
    from ..report.gate_words import judged

    codes = [Exit.OK]
    for judgement in judge_budgets(config.budgets, [metrics(diagnosis.evidence)], diagnosis.ranked):
        if judgement.verdict is Verdict.PASS:
            continue
        level = "error" if judgement.gates else "warning"
        say(f"{level}: {judged(judgement)}")
        if judgement.gates:
            codes.append(Exit.FINDINGS if judgement.verdict is Verdict.REGRESSION else Exit.NOT_MEASURABLE)
    return worst(*codes)
