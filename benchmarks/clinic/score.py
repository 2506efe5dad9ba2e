"""From judgements and truths to rates with intervals. Pure: no program is run here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .judgement import Claim, Judgement, matches
from .truth import Truth

REAL_GAIN = 1.10
"""A fix that gives less than this need not be found."""
HEALTHY = ("decoys", "placebo", "out-of-scope")
"""Strata without anything for the thirteen checks to find."""
JOBS = {"PD03": 34.42, "PD05": 25.64, "PD01": 2.84, "PD09": 3.12}
"""Percent of 706 issues of slow production jobs, by the check that covers them: Gao et al., ICSE 2024."""
QUESTIONS = {"PD03": 29.3, "PD10": 9.0, "PD01": 8.3, "PD05": 4.5, "PD09": 3.0, "PD02": 1.5}
"""Percent of 133 questions about time, mapped by title and label: Cao et al., FSE 2022."""


@dataclass(frozen=True)
class Result:
    """One program judged."""

    case: str
    stratum: str
    sick: bool
    expect: tuple[str, ...]
    allow: tuple[str, ...]
    file: str
    lines: tuple[int, ...]
    truth: Truth | None
    """Of all fixes together; None for what has none or was not measured."""
    order: tuple[str, ...]
    """In `comorbid`: what is expected, the largest true gain first."""
    judgement: Judgement

    @property
    def alarms(self) -> list[Claim]:
        return self.judgement.alarms(self.allow)

    @property
    def right(self) -> list[Claim]:
        """Claims that name an expected cause."""
        return [claim for claim in self.alarms if matches(claim.id, self.expect)]

    @property
    def to_find(self) -> bool:
        """Sick, and the fix was measured to be worth it. What was not measured counts by intent."""
        gain = self.truth.low if self.truth else math.inf
        return self.sick and self.stratum in ("twins", "comorbid", "contended") and gain >= REAL_GAIN

    @property
    def healthy(self) -> bool:
        """Nothing to find: well variants, and strata in which there is none."""
        return self.stratum in HEALTHY or (self.stratum in ("twins", "comorbid", "contended") and not self.sick)


@dataclass(frozen=True)
class Rate:
    """Hits out of trials, with Wilson's 95 % interval."""

    hits: int
    trials: int

    @property
    def value(self) -> float:
        return self.hits / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.trials:
            return 0.0, 1.0
        z, n, p = 1.96, self.trials, self.value
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Scores:
    """Over some results."""

    recall: Rate
    false_alarms: Rate
    wrong_cause: Rate
    """Sick, its cause not named, another one instead."""
    first: Rate
    """Comorbid: the cause with the largest true gain is named first."""
    place: Rate
    harm: Rate
    """Advice given where the fix was measured to hurt."""
    says_so: Rate
    """Slow by what no check names: blames none of them, and says that it does not know."""
    precision: Rate
    """Of the programs that it alarms about; not those in which advice is judged by the harm that it does."""
    failures: int
    errors: tuple[float, ...]
    """|predicted speed-up / true one - 1| of right claims with a truth."""
    right_sign: Rate

    @property
    def median_error(self) -> float:
        return statistics.median(self.errors) if self.errors else math.nan

    @property
    def p90_error(self) -> float:
        return sorted(self.errors)[math.ceil(0.9 * len(self.errors)) - 1] if self.errors else math.nan


def score(results: Iterable[Result]) -> Scores:
    """All rates over the same results."""
    some = list(results)
    judged = [result for result in some if not result.judgement.failure]
    wanted = [result for result in judged if result.to_find]
    found = [result for result in wanted if result.right]
    placed = [result for result in found if result.lines]
    ranked = [result for result in judged if result.stratum == "comorbid" and result.sick and result.order]
    harmful = [result for result in judged if result.sick and result.truth and result.truth.label == "harmful"]
    predicted = [
        (claim.speed_up[1], result.truth.gain)
        for result in found
        if result.truth and result.stratum != "comorbid"
        for claim in result.right[:1]
        if claim.speed_up
    ]
    alarmed = [result for result in judged if result.alarms and result.stratum != "contra"]
    return Scores(
        recall=_rate(wanted, lambda r: bool(r.right)),
        false_alarms=_rate([r for r in judged if r.healthy], lambda r: bool(r.alarms)),
        wrong_cause=_rate(wanted, lambda r: bool(r.alarms) and not r.right),
        first=_rate(ranked, lambda r: bool(r.alarms) and matches(r.alarms[0].id, r.order[:1])),
        place=_rate(placed, lambda r: any(c.line in r.lines and c.file == r.file for c in r.right)),
        harm=_rate(harmful, lambda r: bool(r.right)),
        says_so=_rate(
            [r for r in judged if r.stratum == "out-of-scope"], lambda r: r.judgement.unexplained and not r.alarms
        ),
        precision=_rate(alarmed, lambda r: r.sick and bool(r.right)),
        failures=len(some) - len(judged),
        errors=tuple(abs(guess / true - 1) for guess, true in predicted),
        right_sign=Rate(sum((guess > 1.02) == (true > 1.02) for guess, true in predicted), len(predicted)),
    )


def by_check(results: Sequence[Result]) -> dict[str, Scores]:
    """One row for each check that some case expects."""
    codes = sorted({one.partition(".")[0] for result in results for one in result.expect})
    return {code: score([r for r in results if matches_check(r, code)]) for code in codes}


def matches_check(result: Result, code: str) -> bool:
    """Whether a case is about this check."""
    return any(one.partition(".")[0] == code for one in result.expect)


def weighted_recall(rows: Mapping[str, Scores], weights: Mapping[str, float]) -> float:
    """Recall weighted by how often each check's cause occurs, over the checks that were tried."""
    known = {code: rows[code].recall for code in weights if code in rows and rows[code].recall.trials}
    total = sum(weights[code] for code in known)
    return sum(weights[code] * rate.value for code, rate in known.items()) / total if total else math.nan


def _rate(some: Sequence[Result], hit: Callable[[Result], bool]) -> Rate:
    return Rate(sum(hit(one) for one in some), len(some))
