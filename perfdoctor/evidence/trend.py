"""Whether steps get longer, and which lines do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..recording.lines import LinesWindow
from ..recording.model import ProcessRecording
from .model import GrowingLine, Missing, Parts, StepGrowth, Trend
from .stats import trimmed_mean
from .steady import Selection

Array = npt.NDArray[np.float64]

_LEAST_STEPS = 30
_BLOCKS = (6, 24)
"""At least and at most. Fewer than six have no 99 % interval; more say nothing more."""
_PER_BLOCK = 5
_Z = 2.58
"""99 % of a normal distribution, which Kendall's tau has from a handful of values on."""
_GRADUAL = 0.25
"""Of the common rate, that either half must have: a neighbour that comes makes one jump."""
_GROWN = 0.1
"""Of its early value, from which on something grows at all."""
_AROUND = 8
"""Steps on either side of a window that say how long a part was then."""
_PARTS = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc")


def build(process: ProcessRecording, steps: Selection) -> StepGrowth:
    """The trend of the steady steps, with what was seen to grow."""
    found, kept = trend(steps), process.growth
    if isinstance(found, Missing) or kept is None:
        return StepGrowth(found)
    return StepGrowth(found, kept.containers, kept.graphs, _lines(process, steps, found))


def trend(steps: Selection) -> Trend | Missing:
    """By medians of blocks of neighbouring steps, Theil's and Sen's slope through them, and its interval."""
    if steps.count < _LEAST_STEPS:
        return Missing(f"{steps.count} steady steps have no trend: {_LEAST_STEPS} are needed", "let the job run longer")
    number, wall = steps.column("step").astype(float), steps.column("wall_us") / 1000
    blocks = int(np.clip(steps.count // _PER_BLOCK, *_BLOCKS))
    x, y, cpu = (_medians(values, blocks) for values in (number, wall, steps.column("cpu_us") / 1000))
    slopes = _slopes(x, y)
    beside = _Z * np.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18)
    low, high = (int(np.clip((slopes.size + side * beside) / 2, 0, slopes.size - 1)) for side in (-1, 1))
    common = float(np.median(slopes))
    early, span = float(np.median(y[:2])), float(number[-1] - number[0])
    return Trend(
        steps=int(span) + 1,
        early_ms=early,
        late_ms=early + common * span,
        low=float(slopes[low]) * span / early if early > 0 else 0.0,
        high=float(slopes[high]) * span / early if early > 0 else 0.0,
        is_gradual=_is_gradual(x, y) or _is_gradual(x, cpu),
        parts=Parts(**{name: _gain(values) for name, values in _by_part(steps).items()}),
        cpu_ms=_gain(steps.column("cpu_us") / 1000),
    )


def _medians(values: Array, blocks: int) -> Array:
    return np.array([float(np.median(block)) for block in np.array_split(values, blocks)])


def _is_gradual(x: Array, y: Array) -> bool:
    """Whether both halves of what grows do."""
    grown, half = float(np.median(_slopes(x, y))) * (x[-1] - x[0]), x.size // 2
    halves = [float(np.median(_slopes(x[part], y[part]))) for part in (slice(half), slice(-half, None))]
    least = _GRADUAL * grown / (x[-1] - x[0])
    return bool(grown > _GROWN * float(np.median(y[:2])) and all(one >= least for one in halves))


def _slopes(x: Array, y: Array) -> Array:
    """Between all pairs of points, in order."""
    one, other = np.triu_indices(x.size, 1)
    return np.sort((y[other] - y[one]) / (x[other] - x[one]))


def _by_part(steps: Selection) -> dict[str, Array]:
    parts = {name: steps.column(f"{name}_us") / 1000 for name in _PARTS}
    return {**parts, "other": steps.column("wall_us") / 1000 - sum(parts.values())}


def _gain(values: Array) -> float:
    """From the first step to the last, by the means of the first and the last quarter, whose middles are three
    quarters of that apart."""
    quarter = values.size // 4
    return (trimmed_mean(values[-quarter:]) - trimmed_mean(values[:quarter])) * 4 / 3


def _lines(process: ProcessRecording, steps: Selection, found: Trend) -> tuple[GrowingLine, ...]:
    first, later = process.code_lines, process.later_lines
    if not isinstance(first, LinesWindow) or not isinstance(later, LinesWindow) or found.grown_ms <= 0:
        return ()
    number, wall, parts = steps.column("step"), steps.column("wall_us") / 1000, _by_part(steps)

    def around(window: LinesWindow, values: Array) -> float:
        return trimmed_mean(values[np.argsort(np.abs(number - window.first_step), kind="stable")[: 2 * _AROUND]])

    def ms(window: LinesWindow) -> dict[tuple[object, str], float]:
        length = {part: around(window, values) for part, values in parts.items()}
        took: dict[tuple[object, str], float] = {}
        for line in window.lines:
            key = (line.site, line.part)
            took[key] = took.get(key, 0.0) + line.share * length.get(line.part, 0.0)
        return took

    longer_ms = around(later, wall) - around(first, wall)
    if longer_ms <= 0:
        return ()
    before, after = ms(first), ms(later)
    grown = [
        GrowingLine(site, part, before.get((site, part), 0.0), took, (took - before.get((site, part), 0.0)) / longer_ms)  # type: ignore[arg-type]
        for (site, part), took in after.items()
        if took > before.get((site, part), 0.0)
    ]
    return tuple(sorted(grown, key=lambda line: -line.share))
