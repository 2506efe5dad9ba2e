"""A gate's pairs of launches: what each changed, and what is tolerated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest

from ....gate.model import GateResult, Judgement
from ... import wording
from ...gate_words import change
from ...jsonform import plain
from .model import Chart
from .numbers import shortened


@dataclass(frozen=True, slots=True)
class _Metric:
    label: str
    pairs: list[float]
    """Per cent, slower is more."""
    low: float | None
    high: float | None
    """Of the interval of their mean."""


def pairs_chart(result: GateResult, tolerance: float | None) -> Chart | None:
    """`tolerance`: of a slowdown, 0.05 is 5 %. None where no pairs were timed."""
    judged = {judgement.name: judgement for judgement in result.judgements if result.pairs.get(judgement.name)}
    metrics = [_metric(judgement, result) for judgement in judged.values()]
    if not metrics:
        return None
    said = "; ".join(
        f"{judgement.label}: {change(judgement)} over {wording.plural(len(result.pairs[name]), 'pair')}"
        for name, judgement in judged.items()
    )
    dashed = "" if tolerance is None else f" The dashed line is the tolerated slowdown, {wording.share(tolerance)}."
    return Chart(
        title="Pairs of launches",
        caption=wording.clean(f"{said}.{dashed}"),
        head=("pair", *(metric.label for metric in metrics)),
        rows=tuple(
            (str(number), *("" if percent is None else f"{percent:+.1f} %" for percent in row))
            for number, row in enumerate(zip_longest(*(metric.pairs for metric in metrics)), start=1)
        ),
        data=plain({"metrics": metrics, "tolerance": None if tolerance is None else shortened(100 * tolerance)}),
    )


def _metric(judgement: Judgement, result: GateResult) -> _Metric:
    low, high = (None if end is None else shortened(100 * end) for end in (judgement.low, judgement.high))
    pairs = [shortened(100 * math.expm1(ratio)) for ratio in result.pairs[judgement.name]]
    return _Metric(wording.clean(judgement.label), pairs, low, high)
