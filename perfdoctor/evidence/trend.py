"""Whether steps get longer, and which lines do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..recording.host import HostSample
from ..recording.lines import LinesWindow
from ..recording.model import ProcessRecording
from . import slower_batches, slowing
from .courses import LEAST, course, gain
from .model import GrowingLine, Missing, Parts, StepGrowth, Trend
from .stats import trimmed_mean
from .steady import Selection

Array = npt.NDArray[np.float64]

DRIFT = 0.1
"""Of the early length of a step: the share from which on steps count as slower over time (PD15). What surely changes by
more over the steps seen will not stay as it is, and what it comes to nobody knows."""
_AROUND = 8
"""Steps on either side of a window that say how long a part was then."""
_PARTS = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc")


def build(
    process: ProcessRecording, workers: Sequence[ProcessRecording], steps: Selection, samples: Sequence[HostSample] = ()
) -> StepGrowth:
    """The trend of the steady steps, with what was seen to grow. `samples` are those of the machine."""
    found, kept = trend(steps), process.growth
    if isinstance(found, Missing):
        return StepGrowth(found)
    return StepGrowth(
        found,
        kept.containers if kept is not None else (),
        kept.graphs if kept is not None else (),
        _lines(process, steps, found),
        kept.larger_tensors if kept is not None else (),
        slower_batches.build(process, workers, steps),
        slowing.build(process, samples, steps, found),
        process.planned.steps if process.planned is not None else 0,
        kept.hooks if kept is not None else (),
    )


def trend(steps: Selection) -> Trend | Missing:
    """Of the steps' length and their parts."""
    if steps.count < LEAST:
        return Missing(f"{steps.count} steady steps have no trend: {LEAST} are needed", "let the job run longer")
    number, wall, cpu = (
        steps.column("step").astype(float),
        steps.column("wall_us") / 1000,
        steps.column("cpu_us") / 1000,
    )
    found = course(number, wall)
    return Trend(
        steps=int(number[-1] - number[0]) + 1,
        early_ms=found.early,
        late_ms=found.late,
        low=found.low,
        high=found.high,
        is_gradual=found.is_gradual or course(number, cpu).is_gradual,
        parts=Parts(**{name: gain(values) for name, values in _by_part(steps).items()}),
        cpu_ms=gain(cpu),
    )


def _by_part(steps: Selection) -> dict[str, Array]:
    parts = {name: steps.column(f"{name}_us") / 1000 for name in _PARTS}
    return {**parts, "other": steps.column("wall_us") / 1000 - sum(parts.values())}


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
