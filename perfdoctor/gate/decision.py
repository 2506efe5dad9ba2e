"""When a timed metric has become worse: a sequential test on pairs of fresh launches. Pure: numbers in, verdict out.

The unit of replication is the launch. Steps of one process share its memory layout and its neighbours: tests on
steps raise a false alarm in half of all comparisons of a program with itself. Each pair of launches gives one
log-ratio x. Their 20 % trimmed mean m has Yuen's standard error (K. Yuen, Biometrika 61, 1974).

More pairs are added while the standard error is too large, never because of m, so that looking again does not
raise the rate of false alarms. What looks like a regression has to show itself again on fresh pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from .model import Verdict

TRIM = 0.2
LEAST_PAIRS = 4
"""For an estimate."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rule's numbers. With `tolerance` everything scales: a pair's noise matters relative to it."""

    tolerance: float = 0.05
    """Relative slowdown that must be found, tau."""
    alpha: float = 0.01
    """Chance of a false alarm, for all timed metrics together (Holm)."""
    first: int = 8
    """Pairs before the first look."""
    early: int = 4
    """Pairs before the first look at arms that count the same, which may pass early."""
    more: int = 2
    most: int = 24
    fresh: int = 8
    """Pairs that confirm a regression."""

    @property
    def effect(self) -> float:
        """The tolerance as a log-ratio."""
        return math.log1p(self.tolerance)

    @property
    def wanted_error(self) -> float:
        """Standard error at which no more pairs are added."""
        return self.tolerance / 5

    @property
    def largest_error(self) -> float:
        """Standard error beyond which nothing is said."""
        return self.tolerance / 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """A trimmed mean with its error."""

    mean: float
    error: float
    df: int
    count: int

    def bound(self, chance: float) -> float:
        """Half the width of a one-sided interval that is missed with `chance`."""
        from scipy.special import stdtrit

        return float(stdtrit(self.df, 1 - chance)) * self.error

    @property
    def p_worse(self) -> float:
        """Chance of a mean this large, or larger, if nothing had changed."""
        from scipy.special import stdtr

        if self.error == 0:
            return 0.5 if self.mean == 0 else float(self.mean < 0)
        return float(stdtr(self.df, -self.mean / self.error))


def trimmed_mean(values: Sequence[float]) -> float:
    """The mean without the lowest and the highest 20 %."""
    ordered = np.sort(np.asarray(values, float))
    cut = int(TRIM * len(ordered))
    return float(ordered[cut : len(ordered) - cut].mean())


def estimate(values: Sequence[float]) -> Estimate:
    """Trimmed mean and Yuen's standard error: winsorised variance over what is left. Needs 4 values."""
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    cut = int(TRIM * n)
    left = n - 2 * cut
    if n < LEAST_PAIRS:
        raise ValueError("an estimate needs 4 pairs of launches or more")
    winsorised = np.clip(ordered, ordered[cut], ordered[n - cut - 1])
    error = math.sqrt((n - 1) * float(winsorised.var(ddof=1)) / (left * (left - 1)))
    return Estimate(trimmed_mean(values), error, left - 1, n)


def holm(p_values: Mapping[str, float], alpha: float) -> dict[str, float]:
    """The level that each test of the family is held to; once one test fails, those above it get 0."""
    levels: dict[str, float] = {}
    open_ = True
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        level = alpha / (len(p_values) - rank)
        levels[name] = level if open_ else 0.0
        open_ = open_ and p <= level
    return levels


Family = Mapping[str, Sequence[float]]
"""Timed metric -> log-ratio of each pair; all of the same length."""


def vague(values: Sequence[float], policy: Policy) -> bool:
    """Whether further pairs are wanted for precision."""
    return len(values) < policy.first or (len(values) < policy.most and estimate(values).error > policy.wanted_error)


def passes_early(first: Family, leading: str, policy: Policy) -> bool:
    """Whether fewer than `policy.first` pairs rule the slowdown out, by the `leading` metric; for arms that count the
    same, of which a slowdown is not expected. An arm that is slower by the tolerance passes so at most once in 100
    looks; nothing can fail early, so false alarms are as rare as before."""
    count = len(first[leading])
    if not policy.early <= count < policy.first:
        return False
    seen = estimate(first[leading])
    within = seen.mean + seen.bound(policy.alpha) < policy.effect
    return seen.error <= policy.wanted_error and within and not suspects(first, policy)


class Next(Enum):
    """What the sequential test wants."""

    MORE = "more"
    """Further pairs, for precision."""
    CONFIRM = "confirm"
    """Fresh pairs, because this looks like a regression."""
    DONE = "done"


def wants(first: Family, leading: str, policy: Policy, time_left: bool) -> Next:
    """After the first pairs: more of them, fresh ones, or none. Precision is that of the `leading` metric."""
    count = len(first[leading])
    if count < policy.first:
        return Next.MORE if time_left else Next.DONE
    seen = estimate(first[leading])
    if seen.error > policy.wanted_error and count < policy.most and time_left:
        return Next.MORE
    return Next.CONFIRM if suspects(first, policy) else Next.DONE


def suspects(first: Family, policy: Policy) -> tuple[str, ...]:
    """Metrics that look worse by half the tolerance or more, beyond chance, and precisely enough to say so."""
    seen = {name: estimate(values) for name, values in first.items() if len(values) >= LEAST_PAIRS}
    levels = holm({name: e.p_worse for name, e in seen.items()}, policy.alpha)
    return tuple(
        name for name, e in seen.items() if e.error <= policy.largest_error and _is_worse(e, levels[name], policy)
    )


def _is_worse(seen: Estimate, level: float, policy: Policy) -> bool:
    return level > 0 and seen.mean >= policy.effect / 2 and seen.mean - seen.bound(level) > 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rule says about one timed metric."""

    verdict: Verdict
    seen: Estimate | None
    """Over all pairs, fresh ones included; None with fewer than 4."""
    reason: str


def decide(first: Family, fresh: Family, policy: Policy) -> dict[str, Decision]:
    """The verdict on every timed metric; `fresh` is empty unless `wants` asked for it."""
    suspected = suspects(first, policy)
    pooled = {name: [*values, *fresh.get(name, ())] for name, values in first.items()}
    levels = holm({n: estimate(v).p_worse for n, v in pooled.items() if len(v) >= LEAST_PAIRS}, policy.alpha)
    return {
        name: _decide_one(values, fresh.get(name, ()), pooled[name], name in suspected, levels.get(name, 0.0), policy)
        for name, values in first.items()
    }


def _decide_one(
    first: Sequence[float],
    fresh: Sequence[float],
    pooled: Sequence[float],
    suspected: bool,
    level: float,
    policy: Policy,
) -> Decision:
    if len(first) < policy.first:
        seen = estimate(pooled) if len(pooled) >= LEAST_PAIRS else None
        return Decision(
            Verdict.INCONCLUSIVE, seen, f"{len(first)} of {policy.first} pairs of launches: the time was up"
        )
    seen, at_first = estimate(pooled), estimate(first)
    if at_first.error > policy.largest_error:
        return Decision(
            Verdict.INCONCLUSIVE,
            seen,
            f"too noisy: standard error {100 * at_first.error:.1f} %, at most "
            f"{100 * policy.largest_error:.2f} % is needed to see {100 * policy.tolerance:.0f} %",
        )
    if suspected:
        if len(fresh) < policy.fresh:
            return Decision(Verdict.INCONCLUSIVE, seen, "it looks slower, but the time was up before fresh launches")
        again = trimmed_mean(fresh)
        if again >= 0.3 * policy.effect and _is_worse(seen, level, policy):
            return Decision(Verdict.REGRESSION, seen, "slower, and again in fresh launches")
        if seen.mean + seen.bound(0.05) >= policy.effect:
            return Decision(Verdict.INCONCLUSIVE, seen, "it looked slower at first, but not in fresh launches")
    if seen.mean + seen.bound(0.05) < policy.effect:
        if seen.mean < 0 and -seen.mean >= policy.effect / 2 and seen.mean + seen.bound(policy.alpha) < 0:
            return Decision(Verdict.IMPROVEMENT, seen, "faster")
        return Decision(Verdict.PASS, seen, f"no slowdown of {100 * policy.tolerance:.0f} % or more")
    return Decision(Verdict.INCONCLUSIVE, seen, f"a slowdown of {100 * policy.tolerance:.0f} % cannot be ruled out")


SHARE_RISE = 0.03
"""Percentage points (as a fraction) that a share must rise ..."""
SHARE_LEAST = 0.05
"""... and the share it must reach: below that it costs too little to fail a build."""


def decide_share(differences: Sequence[float], after: float, policy: Policy) -> Decision:
    """A share of the step, after minus before, per pair of launches: `differences` are fractions of 1."""
    seen = estimate(differences) if len(differences) >= LEAST_PAIRS else None
    if seen is None or len(differences) < policy.first:
        return Decision(Verdict.INCONCLUSIVE, seen, "too few pairs of launches")
    if seen.mean >= SHARE_RISE and seen.mean - seen.bound(policy.alpha) > 0 and after >= SHARE_LEAST:
        return Decision(Verdict.REGRESSION, seen, f"a rise of {100 * SHARE_RISE:.0f} points or more")
    if seen.mean + seen.bound(0.05) < SHARE_RISE or after + seen.bound(0.05) < SHARE_LEAST:
        return Decision(Verdict.PASS, seen, f"no rise of {100 * SHARE_RISE:.0f} points or more")
    return Decision(Verdict.INCONCLUSIVE, seen, f"a rise of {100 * SHARE_RISE:.0f} points cannot be ruled out")
