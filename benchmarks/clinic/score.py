"""From judgements and truths to rates with intervals. Pure: no program is run here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .judgement import Claim, Judgement, matches
from .predictions import Prediction
from .rate import Rate
from .truth import Truth

REAL_GAIN = 1.10
"""A fix that gives less than this need not be found."""
_KNOWN = 1.6
"""Ends of a truth's interval: one that is known to 25 % either way says how far off a prediction is."""
HEALTHY = ("decoys", "placebo", "out-of-scope")
"""Strata without anything for the thirteen checks to find."""


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
    twin: bool = True
    """Whether the program has a sick and a well variant."""
    beyond: bool = False
    """Whether the cure goes further than the advice."""

    @property
    def alarms(self) -> list[Claim]:
        return self.judgement.alarms(self.allow)

    @property
    def right(self) -> list[Claim]:
        """Claims that name an expected cause, opportunities among them: a larger batch is one by nature."""
        return [claim for claim in self.judgement.claims if matches(claim.id, self.expect)]

    @property
    def prediction(self) -> Prediction | None:
        """What the first claim of an expected cause, a note's too, says the fix is worth, and what it is worth.

        None where several causes share the truth, where the cure is another than the advice, where the sitting was too
        noisy to tell, and where it was another machine's.
        """
        claims = [claim for claim in self.judgement.claims if matches(claim.id, self.expect) and claim.speed_up]
        if not (self.sick and claims and self.truth) or self.stratum == "comorbid" or self.beyond:
            return None
        if not self.truth.here or self.truth.label == "ambiguous" or self.truth.high > _KNOWN * self.truth.low:
            return None
        low, middle, high = claims[0].speed_up or (1.0, 1.0, 1.0)
        return Prediction(claims[0].id.partition(".")[0], low, middle, high, claims[0].ceiling or 1.0, self.truth.gain)

    @property
    def to_find(self) -> bool:
        """Sick, and the fix was measured to be worth it. What was not measured counts by intent."""
        gain = self.truth.low if self.truth else math.inf
        return self.sick and self.stratum in ("twins", "comorbid", "contended") and gain >= REAL_GAIN

    @property
    def out_of_scope(self) -> bool:
        """Slow by something that none of the checks names."""
        gain = self.truth.low if self.truth else math.inf
        return self.stratum == "out-of-scope" and (self.sick or not self.twin) and gain >= REAL_GAIN

    @property
    def healthy(self) -> bool:
        """Nothing to find: well variants, and strata in which there is none."""
        return self.stratum in HEALTHY or (self.stratum in ("twins", "comorbid", "contended") and not self.sick)


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
    useless: Rate
    """Advice given where the fix was measured to change nothing."""
    says_so: Rate
    """Slow by what no check names: blames none of them, and says that it does not know."""
    precision: Rate
    """Of the programs that it alarms about; not those in which advice is judged by the harm that it does."""
    failures: int
    skipped: int
    """Programs that cannot be run here, or not by this doctor."""
    predictions: tuple[Prediction, ...]


def score(results: Iterable[Result]) -> Scores:
    """All rates over the same results."""
    some = list(results)
    asked = [result for result in some if not result.judgement.skipped]
    judged = [result for result in asked if not result.judgement.failure]
    wanted = [result for result in judged if result.to_find]
    placed = [result for result in wanted if result.right and result.lines]
    ranked = [result for result in judged if result.stratum == "comorbid" and result.sick and result.order]
    alarmed = [result for result in judged if result.alarms and result.stratum != "contra"]
    return Scores(
        recall=_rate(wanted, lambda r: bool(r.right)),
        false_alarms=_rate([r for r in judged if r.healthy], lambda r: bool(r.alarms)),
        wrong_cause=_rate(wanted, lambda r: bool(r.alarms) and not r.right),
        first=_rate(ranked, lambda r: bool(r.alarms) and matches(r.alarms[0].id, r.order[:1])),
        place=_rate(placed, lambda r: any(c.line in r.lines and c.file == r.file for c in r.right)),
        harm=_rate(_measured(judged, "harmful"), lambda r: bool(r.right)),
        useless=_rate(_measured(judged, "null"), lambda r: bool(r.right)),
        says_so=_rate([r for r in judged if r.out_of_scope], lambda r: r.judgement.unexplained and not r.alarms),
        precision=_rate(alarmed, lambda r: r.sick and bool(r.right)),
        failures=len(asked) - len(judged),
        skipped=len(some) - len(asked),
        predictions=tuple(one for r in judged if (one := r.prediction)),
    )


def _measured(judged: Iterable[Result], label: str) -> list[Result]:
    """Programs whose fix came out like this."""
    return [result for result in judged if result.sick and result.truth and result.truth.label == label]


def by_check(results: Sequence[Result]) -> dict[str, Scores]:
    """One row for each check that some case expects."""
    codes = sorted({one.partition(".")[0] for result in results for one in result.expect})
    return {code: score([r for r in results if matches_check(r, code)]) for code in codes}


def matches_check(result: Result, code: str) -> bool:
    """Whether a case is about this check."""
    return any(one.partition(".")[0] == code for one in result.expect)


def precision_of(results: Iterable[Result], code: str) -> Rate:
    """How many of a check's alarms, about whatever program, name what is wrong with it."""
    judged = [one for one in results if one.stratum != "contra" and not one.judgement.failure]
    pairs = [(one, claim) for one in judged for claim in one.alarms if matches(claim.id, (code,))]
    return Rate(sum(one.sick and matches(claim.id, one.expect) for one, claim in pairs), len(pairs))


def _rate(some: Sequence[Result], hit: Callable[[Result], bool]) -> Rate:
    return Rate(sum(hit(one) for one in some), len(some))
