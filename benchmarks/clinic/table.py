"""The clinic's tables, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from .score import JOBS, QUESTIONS, Rate, Result, Scores, by_check, score, weighted_recall


def render(found: Mapping[str, Sequence[Result]]) -> RenderableType:
    """One table of all doctors; one of perfdoctor by check; what went wrong, case by case."""
    first = next(iter(found.values()))
    return Group(_doctors(found), _checks(first), *_mistakes(first))


def _doctors(found: Mapping[str, Sequence[Result]]) -> Table:
    table = Table(title="over all cases, with 95 % intervals")
    table.add_column("")
    columns = []
    for name, results in found.items():
        table.add_column(name, justify="right")
        columns.append(_column(score(results), by_check(results)))
    for row in zip(*columns, strict=True):
        table.add_row(row[0][0], *(value for _, value in row))
    return table


def _column(scores: Scores, rows: Mapping[str, Scores]) -> list[tuple[str, str]]:
    return [
        ("recall, true gain 1.10x or more", _shown(scores.recall)),
        ("  weighted by slow production jobs", _percent(weighted_recall(rows, JOBS))),
        ("  weighted by users' questions", _percent(weighted_recall(rows, QUESTIONS))),
        ("false alarms on healthy programs", _shown(scores.false_alarms)),
        ("precision of what alarms", _shown(scores.precision)),
        ("wrong cause instead of the right one", _shown(scores.wrong_cause)),
        ("largest of several causes first", _shown(scores.first)),
        ("says so where no check explains it", _shown(scores.says_so)),
        ("right file and line", _shown(scores.place)),
        ("advice that hurts", _shown(scores.harm)),
        ("error of predicted speed-up", _errors(scores)),
        ("right sign", _shown(scores.right_sign)),
        ("no judgement", str(scores.failures)),
    ]


def _checks(results: Sequence[Result]) -> Table:
    table = Table(title="perfdoctor by check")
    for name in ("", "recall", "false alarms on its well twins", "line", "prediction error"):
        table.add_column(name, justify="left" if not name else "right")
    for code, scores in by_check(results).items():
        table.add_row(code, _shown(scores.recall), _shown(scores.false_alarms), _shown(scores.place), _errors(scores))
    return table


def _mistakes(results: Sequence[Result]) -> list[str]:
    lines = []
    for one in results:
        said = ", ".join(claim.id for claim in one.alarms) or "nothing"
        if one.judgement.failure:
            lines.append(f"{one.case}: no judgement: {one.judgement.failure.strip()}")
        elif one.to_find and not one.right:
            lines.append(f"{one.case}: missed {' or '.join(one.expect)}, said {said}")
        elif one.healthy and one.alarms:
            lines.append(f"{one.case}: false alarm: {said}")
    return lines


def _shown(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.hits}/{rate.trials} [{low:.2f}, {high:.2f}]" if rate.trials else "-"


def _errors(scores: Scores) -> str:
    if not scores.errors:
        return "-"
    return f"{_percent(scores.median_error)}, p90 {_percent(scores.p90_error)} ({len(scores.errors)})"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"
