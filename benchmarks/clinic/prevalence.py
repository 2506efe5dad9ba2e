"""How often each cause occurs in reality, and rates weighted by it. Pure.

Two counts, which differ by where they looked: at the slow jobs of a cluster, and at users' questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

JOBS = {"PD03": 34.42, "PD05": 25.64, "PD01": 2.84, "PD09": 3.12}
"""Percent of 706 issues of 400 slow production jobs on GPUs (Gao et al., ICSE 2024), by the check that covers them.
PD03: copies that are not pinned 27.90, preprocessing 3.97, remote data 2.55. PD01: unused devices 2.27, jobs that do
not train 0.57. The other 34 %, half of them checkpoints, none of the checks covers."""
QUESTIONS = {"PD03": 29.3, "PD10": 9.0, "PD01": 8.3, "PD05": 4.5, "PD09": 3.0, "PD02": 1.5}
"""Percent of 133 questions about time, mapped by title and label (Cao et al., FSE 2022); PD10 is unvectorised code. The
other 44 % none of the checks covers."""


@dataclass(frozen=True)
class Weighted:
    """A rate over reality's mixture of causes."""

    tried: float
    """Over the causes that some program has; not a number when none has."""
    all: float
    """Over everything that was counted: a cause without a program or a check counts as missed."""
    share: float
    """How much of what was counted the causes tried make up."""


def weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> Weighted:
    """`values` by check; those that are not a number were not tried. `weights` in percent of all that was counted."""
    known = {code: weights[code] for code in weights if not math.isnan(values.get(code, math.nan))}
    total = sum(known.values())
    hit = sum(weight * values[code] for code, weight in known.items())
    return Weighted(tried=hit / total if total else math.nan, all=hit / 100, share=total / 100)


def f1(recall: float, precision: float) -> float:
    """Harmonic mean; 0 when nothing was found, not a number without trials of either."""
    if math.isnan(recall) or math.isnan(precision):
        return 0.0 if recall == 0 or precision == 0 else math.nan
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0
