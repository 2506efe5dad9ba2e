"""The reliability diagram of `docs/accuracy.md`: how often truths lie in the ranges that are told for them.

    python -m benchmarks.reliability        writes docs/pictures/reliability.svg

From the kept predictions (`benchmarks/clinic/predictions`), which `python -m benchmarks.calibrate` adds to. Each is
judged by how far those of the other programs missed, so none is judged by itself.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from scipy.stats import binomtest

from perfdoctor.diagnosis.calibration import COVERAGE, miss

from .calibrate import kept

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "reliability.svg"
_LEVELS = np.arange(0.1, 0.96, 0.05)
_INK, _TOLD, _MISSED = "#57606a", "#1f6feb", "#cf222e"
"""Dark enough on white and light enough on the dark of a code host's pages."""


def observed(predictions: list[dict[str, Any]], level: float) -> int:
    """Truths inside of ranges that ought to hold this share of them, by what other programs' predictions missed."""
    inside = 0
    for one in predictions:
        others = [other for other in predictions if other["program"] != one["program"]]
        lows, highs = (sorted(ends) for ends in zip(*map(_missed, others), strict=True))
        rank = min(len(others), math.ceil((1 + level) / 2 * (len(others) + 1)))
        below, above = _missed(one)
        inside += below >= lows[-rank] and above <= highs[rank - 1]
    return inside


def _missed(one: dict[str, Any]) -> tuple[float, float]:
    return miss(one["low"], one["high"], one["true"])


def draw(predictions: list[dict[str, Any]]) -> None:
    """Write the picture."""
    mpl.rcParams.update({"svg.hashsalt": "reliability", "font.size": 10, "text.color": _INK, "axes.labelcolor": _INK})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained")
    _gains(left, predictions)
    _coverage(right, predictions)
    for axes in (left, right):
        axes.tick_params(colors=_INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_INK)
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None})


def _gains(axes: Axes, predictions: list[dict[str, Any]]) -> None:
    """The range that each check gave, before it was widened, over the true speed-up."""
    for one in predictions:
        hits = one["low"] <= one["true"] <= one["high"]
        axes.plot([one["true"]] * 2, [one["low"], one["high"]], color=_TOLD if hits else _MISSED, lw=3, alpha=0.7)
    most = 1.3 * max(one["true"] for one in predictions)
    axes.plot([1, most], [1, most], color=_INK, lw=1, ls=":")
    axes.set(xscale="log", yscale="log", xlabel="true speed-up", ylabel="range that the check gave")
    axes.set(xlim=(1, most), ylim=(1, most))
    ticks = [tick for tick in (1, 1.25, 1.5, 2, 3, 5, 10, 20) if tick <= most]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}x" for tick in ticks])
        axis.set_ticks([], minor=True)
    inside = sum(one["low"] <= one["true"] <= one["high"] for one in predictions)
    axes.set_title(f"before widening: {inside} of {len(predictions)} hold the truth", fontsize=10)


def _coverage(axes: Axes, predictions: list[dict[str, Any]]) -> None:
    """Share of truths inside, over the share that is promised."""
    tests = [binomtest(observed(predictions, level), len(predictions)) for level in _LEVELS]
    ranges = [test.proportion_ci(0.95, "wilson") for test in tests]
    axes.fill_between(_LEVELS, [r.low for r in ranges], [r.high for r in ranges], color=_TOLD, alpha=0.15, lw=0)
    axes.plot(_LEVELS, [test.statistic for test in tests], color=_TOLD, marker="o", ms=4)
    axes.plot([0, 1], [0, 1], color=_INK, lw=1, ls=":")
    axes.axvline(COVERAGE, color=_INK, lw=1, ls="--")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of truths that ranges promise", ylabel="share inside")
    axes.set_title(f"widened, programs left out; 95 % intervals; told: {COVERAGE:.0%}", fontsize=10)


if __name__ == "__main__":
    draw(kept())
