"""How far what was predicted of a fix is from what it is worth, beside what takes no thought to predict. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .rate import Rate

SAME = 1.02
"""A speed-up below this is none: what the sign of a gain is asked about."""
GAIN = 1.10
"""True speed-up from which on the error of the gain is a figure: below, it divides by next to nothing."""
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "PD02": (1.18, 1.42, 1.43, 2.40),
    "PD03": (1.03, 1.15, 1.49, 1.5, 2.68, 4.0, 5.0, 10.0, 12.0, 47.0, 50.0, 100.0),
    "PD04": (1.015, 1.06, 1.126, 2.0, 5.0, 252.0),
    "PD05": (3.41, 4.92, 20.0),
    "PD06": (2.0, 8.0),
    "PD07": (1.67, 2.35, 9.0),
    "PD08": (1.15, 1.16, 1.20, 1.22, 1.34, 1.4, 2.2),
    "PD09": (48.9, 96.0),
    "PD10": (1.06, 1.2, 1.77, 2.0, 2.2, 8.9, 10.1, 27.0, 58.0, 59.0),
    "PD11": (2.36,),
    "PD12": (1.9, 9.0, 9.5),
    "PD13": (1.09, 1.22, 2.0, 10.0, 29.0, 45.0),
}
"""Speed-ups that reports, papers and our own pilot give for a cause: issues and pull requests of PyTorch and of
projects built on it, Gao et al. (ICSE 2024), tf.data (VLDB 2021), Plumber (MLSys 2022). Means of ranges; functions and
steps mixed, as their authors gave them."""


@dataclass(frozen=True)
class Prediction:
    """Rates over today's: what was said, and what was measured."""

    code: str
    """The check that said it."""
    low: float
    middle: float
    high: float
    amdahl: float
    """If all the time that it blames were gone."""
    true: float


@dataclass(frozen=True)
class Errors:
    """Over some predictions."""

    speed_up: tuple[float, ...]
    """|predicted / true - 1|, in order of size."""
    gain: tuple[float, ...]
    """|(predicted - 1) / (true - 1) - 1| where the true speed-up is 1.10x or more: 1 for who always predicts none."""
    sign: Rate
    """Says faster where it is, and not where it is not."""
    covered: Rate
    """The true speed-up lies within the predicted range."""
    too_high: Rate


def errors(predictions: Iterable[Prediction]) -> Errors:
    """Of the middles, and of the ranges."""
    some = list(predictions)
    return Errors(
        speed_up=tuple(sorted(abs(one.middle / one.true - 1) for one in some)),
        gain=tuple(sorted(abs((one.middle - 1) / (one.true - 1) - 1) for one in some if one.true >= GAIN)),
        sign=Rate(sum((one.middle > SAME) == (one.true > SAME) for one in some), len(some)),
        covered=Rate(sum(one.low <= one.true <= one.high for one in some), len(some)),
        too_high=Rate(sum(one.middle > one.true for one in some), len(some)),
    )


def median(values: Iterable[float]) -> float:
    """Not a number for none."""
    some = list(values)
    return statistics.median(some) if some else math.nan


def p90(values: Iterable[float]) -> float:
    """The smallest value that nine tenths do not exceed."""
    some = sorted(values)
    return some[math.ceil(0.9 * len(some)) - 1] if some else math.nan


def trivial(predictions: Iterable[Prediction]) -> dict[str, Errors]:
    """Those that take no thought, on the same fixes: whoever is no better than these need not predict."""
    some = list(predictions)
    return {name: errors([_at(one, guess(one)) for one in some]) for name, guess in _TRIVIAL.items()}


def _at(prediction: Prediction, guess: float) -> Prediction:
    return Prediction(prediction.code, guess, guess, guess, prediction.amdahl, prediction.true)


_TRIVIAL: Mapping[str, Callable[[Prediction], float]] = {
    "always 1.0x": lambda one: 1.0,
    "all the time that is blamed": lambda one: one.amdahl,
    "median of published gains": lambda one: median(PUBLISHED.get(one.code, (1.0,))),
}
