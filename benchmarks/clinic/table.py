"""The clinic's tables, for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from .case import STRATA, Case
from .predictions import Prediction, errors, median, p90, trivial
from .prevalence import JOBS, QUESTIONS, Weighted, weighted
from .rate import Rate
from .score import Result, by_check, precision_of, score
from .summary import f1_by_check

WEIGHTS = {"slow production jobs": JOBS, "users' questions": QUESTIONS}


def render(found: Mapping[str, Sequence[Result]]) -> RenderableType:
    """One table of all doctors; of the first one by check and its predictions; what went wrong, case by case."""
    first = next(iter(found.values()))
    return Group(_doctors(found), _checks(first), _predictions(score(first).predictions), *_mistakes(first))


def inventory(some: Sequence[Case]) -> Table:
    """How many cases there are, by what they expect and how; decoys by what they resemble, where they say so."""
    table = Table(title=f"{len(some)} cases, {sum(case.smoke for case in some)} of them in the smoke subset")
    for name in ("", *STRATA, "in the subset"):
        table.add_column(name, justify="left" if not name else "right")
    counts = Counter((code, column) for case in some for code in _codes(case) for column in _columns(case))
    for code in sorted({code for code, _ in counts}):
        table.add_row(code or "nothing", *(str(counts[code, column] or "") for column in (*STRATA, "smoke")))
    return table


def _codes(case: Case) -> set[str]:
    return {one.partition(".")[0] for one in case.expect} or set(case.resembles) or {""}


def _columns(case: Case) -> list[str]:
    return [case.stratum, *(["smoke"] if case.smoke else [])]


def _doctors(found: Mapping[str, Sequence[Result]]) -> Table:
    table = Table(title="over all cases, with 95 % intervals")
    table.add_column("")
    columns = []
    for name, results in found.items():
        table.add_column(name, justify="right")
        columns.append(_column(results))
    for row in zip(*columns, strict=True):
        table.add_row(row[0][0], *(value for _, value in row))
    return table


def _column(results: Sequence[Result]) -> list[tuple[str, str]]:
    scores, rows = score(results), by_check(results)
    recalls = {code: row.recall.value for code, row in rows.items()}
    harmonic = f1_by_check(results, rows)
    some = [value for value in harmonic.values() if not math.isnan(value)]
    return [
        ("recall, true gain 1.10x or more", _shown(scores.recall)),
        *(row for name, weights in WEIGHTS.items() for row in _weighted_recall(name, weighted(recalls, weights))),
        ("false alarms on healthy programs", _shown(scores.false_alarms)),
        ("precision of what alarms", _shown(scores.precision)),
        ("F1, mean over the checks", _percent(sum(some) / len(some)) if some else "-"),
        *((f"  weighted by {name}", _percent(weighted(harmonic, weights).tried)) for name, weights in WEIGHTS.items()),
        ("wrong cause instead of the right one", _shown(scores.wrong_cause)),
        ("largest of several causes first", _shown(scores.first)),
        ("says so where no check explains it", _shown(scores.says_so)),
        ("right file and line", _shown(scores.place)),
        ("advice that hurts", _shown(scores.harm)),
        ("advice that changes nothing", _shown(scores.useless)),
        ("error of predicted speed-up", _errors(scores.predictions)),
        ("no judgement", str(scores.failures)),
        ("not allowed here, or not asked", str(scores.skipped)),
    ]


def _weighted_recall(name: str, found: Weighted) -> list[tuple[str, str]]:
    return [
        (f"  weighted by {name}", _percent(found.tried)),
        ("    and by what no check is for", _percent(found.all)),
    ]


def _checks(results: Sequence[Result]) -> Table:
    table = Table(title="perfdoctor by check")
    for name in ("", "recall", "precision", "false alarms on its well twins", "line", "prediction error"):
        table.add_column(name, justify="left" if not name else "right")
    for code, scores in by_check(results).items():
        precision = _shown(precision_of(results, code))
        line, error = _shown(scores.place), _errors(scores.predictions)
        table.add_row(code, _shown(scores.recall), precision, _shown(scores.false_alarms), line, error)
    return table


def _predictions(some: Sequence[Prediction]) -> Table:
    table = Table(title=f"{len(some)} predictions of fixes that were measured")
    for name in ("", "error of speed-up", "error of gain", "right sign", "within the range", "too high"):
        table.add_column(name, justify="left" if not name else "right")
    for name, one in {"perfdoctor": errors(some), **trivial(some)}.items():
        within = _shown(one.covered) if name == "perfdoctor" else "-"
        table.add_row(name, _spread(one.speed_up), _spread(one.gain), _shown(one.sign), within, _shown(one.too_high))
    return table


def _mistakes(results: Sequence[Result]) -> list[str]:
    lines = []
    for one in results:
        said = ", ".join(claim.id for claim in one.alarms) or "nothing"
        if one.judgement.skipped:
            lines.append(f"{one.case}: {one.judgement.skipped}")
        elif one.judgement.failure:
            lines.append(f"{one.case}: no judgement: {one.judgement.failure.strip()}")
        elif one.to_find and not one.right:
            lines.append(f"{one.case}: missed {' or '.join(one.expect)}, said {said}")
        elif one.healthy and one.alarms:
            lines.append(f"{one.case}: false alarm: {said}")
        elif one.out_of_scope and not one.judgement.unexplained:
            lines.append(f"{one.case}: does not say that none of the checks explains it")
        elif one.sick and one.right and one.truth and one.truth.label in ("harmful", "null"):
            lines.append(f"{one.case}: advises {said}, whose fix was measured at {one.truth.gain:.2f}x")
    return lines


def _shown(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.hits}/{rate.trials} [{low:.2f}, {high:.2f}]" if rate.trials else "-"


def _errors(some: Sequence[Prediction]) -> str:
    return f"{_spread(errors(some).speed_up)} ({len(some)})" if some else "-"


def _spread(values: Sequence[float]) -> str:
    return f"{_percent(median(values))}, p90 {_percent(p90(values))}" if values else "-"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"
