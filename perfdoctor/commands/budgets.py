"""`[assert]`: what a job promises absolutely, in every run that is judged."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..config.gate import Budget
from ..config.settings import Config
from ..diagnosis.findings import Diagnosis
from ..errors import PerfdoctorError
from ..exits import Exit, worst
from ..gate.metrics import COUNTED, NAMES


def require_known_budgets(config: Config) -> None:
    """Raises PerfdoctorError for a promise about something that does not exist."""
    from ..config.table import nearest
    from ..diagnosis.registry import discover
    from ..gate.budgets import unknown

    codes = [entry.check.code for entry in discover()]
    name = unknown(config.budgets, NAMES, codes)
    if name:
        raise PerfdoctorError(
            f"`assert.{name}` in {config.source} is neither a metric nor a check{nearest(name, [*NAMES, *codes])}",
            slug="config-unknown-metric",
            advice=f"metrics: {', '.join(NAMES)}, op:NAME; checks: {', '.join(codes)}",
        )
    for metric, _ in config.gate.counter_tolerance:
        if metric not in NAMES and not metric.startswith("op:"):
            raise PerfdoctorError(
                f"a tolerance for {metric}, which is no metric{nearest(metric, NAMES)}",
                slug="config-unknown-metric",
                advice=f"metrics: {', '.join(NAMES)}, op:NAME",
            )


def needs_counters(budgets: Sequence[Budget]) -> bool:
    """Whether a promise is about what only the counters window sees."""
    return any(budget.name in COUNTED or budget.name.startswith("op:") for budget in budgets if budget.level != "off")


def keep_promises(diagnosis: Diagnosis, config: Config) -> Exit:
    """One line on stderr for each promise that is broken or cannot be judged; what the shell gets for it."""
    from ..gate.budgets import judge_budgets
    from ..gate.metrics import metrics
    from ..gate.model import Verdict
    from ..report.gate_words import judged

    codes = [Exit.OK]
    for judgement in judge_budgets(config.budgets, [metrics(diagnosis.evidence)], diagnosis.ranked):
        if judgement.verdict is Verdict.PASS:
            continue
        level = "error" if judgement.gates else "warning"
        print(f"perfdoctor: {level}: {judged(judgement)}", file=sys.stderr)
        if judgement.gates:
            codes.append(Exit.FINDINGS if judgement.verdict is Verdict.REGRESSION else Exit.NOT_MEASURABLE)
    return worst(*codes)
