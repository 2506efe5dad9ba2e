"""The clinic's numbers for machines: what the table shows, with nothing rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .predictions import Errors, Prediction, errors, median, p90, trivial
from .prevalence import JOBS, QUESTIONS, f1, weighted
from .rate import Rate
from .score import Result, Scores, by_check, precision_of, score

WEIGHTS = {"production_jobs": JOBS, "users_questions": QUESTIONS}
_RATES = (
    *("recall", "false_alarms", "precision", "wrong_cause", "first", "says_so", "place", "harm", "useless"),
    *("failures", "skipped"),
)


def scores(found: Mapping[str, Sequence[Result]]) -> dict[str, Any]:
    """By doctor: over all, by check, and weighted by how often each cause occurs."""
    return {name: _doctor(results) for name, results in found.items()}


def f1_by_check(results: Sequence[Result], rows: Mapping[str, Scores]) -> dict[str, float]:
    """Of each check: recall of its illnesses and precision of its alarms."""
    return {code: f1(row.recall.value, precision_of(results, code).value) for code, row in rows.items()}


def _doctor(results: Sequence[Result]) -> dict[str, Any]:
    rows = by_check(results)
    recalls = {code: row.recall.value for code, row in rows.items()}
    harmonic = f1_by_check(results, rows)
    checks = {
        code: {**_plain(row), "precision": _rate(precision_of(results, code)), "f1": _number(harmonic[code])}
        for code, row in rows.items()
    }
    return {
        "all": _plain(score(results)),
        "checks": checks,
        "weighted": {
            name: {
                "recall": {key: _number(value) for key, value in asdict(weighted(recalls, weights)).items()},
                "f1": _number(weighted(harmonic, weights).tried),
            }
            for name, weights in WEIGHTS.items()
        },
        "programs": [_program(one) for one in results],
    }


def _program(one: Result) -> dict[str, Any]:
    facts = asdict(one)
    return {**facts, "label": one.truth.label if one.truth else "by intent"}


def _plain(row: Scores) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in _RATES}
    return {
        **{name: _rate(value) if isinstance(value, Rate) else value for name, value in values.items()},
        "predictions": _predictions(row.predictions),
    }


def _predictions(some: Sequence[Prediction]) -> dict[str, Any]:
    return {"its own": _errors(errors(some)), **{name: _errors(one) for name, one in trivial(some).items()}}


def _errors(one: Errors) -> dict[str, Any]:
    return {
        "count": len(one.speed_up),
        "speed_up_median": _number(median(one.speed_up)),
        "speed_up_p90": _number(p90(one.speed_up)),
        "gain_median": _number(median(one.gain)),
        "gain_p90": _number(p90(one.gain)),
        "sign": _rate(one.sign),
        "covered": _rate(one.covered),
        "too_high": _rate(one.too_high),
    }


def _rate(rate: Rate) -> dict[str, float | int | None]:
    low, high = rate.interval
    return {"hits": rate.hits, "trials": rate.trials, "value": _number(rate.value), "low": low, "high": high}


def _number(value: float) -> float | None:
    """JSON has no "not a number"."""
    return None if math.isnan(value) else value
