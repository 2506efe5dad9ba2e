"""Whether steps get longer, and which lines do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..recording.growth import AlikeHooks
from ..recording.host import HostSample
from ..recording.lines import LinesWindow
from ..recording.model import ProcessRecording
from . import longer_rounds, slower_batches, slowing
from .courses import LEAST, course, gain
from .model import GrowingLine, Missing, Parts, RepeatedHandlers, RepeatedHooks, Site, StepGrowth, Trend
from .steady import Selection

Array = npt.NDArray[np.float64]

DRIFT = 0.1
"""Of the early length of a step: the share from which on steps count as slower over time (PD15). What surely changes by
more over the steps seen will not stay as it is, and what it comes to nobody knows."""
_PARTS = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc")


def build(
    process: ProcessRecording, workers: Sequence[ProcessRecording], steps: Selection, samples: Sequence[HostSample] = ()
) -> StepGrowth:
    """The trend of the steady steps, with what was seen to grow. `samples` are those of the machine."""
    found, kept, rounds = trend(steps), process.growth, longer_rounds.build(process, steps)
    if isinstance(found, Missing):
        return StepGrowth(
            found,
            repeated_hooks=_repeated_hooks(process, steps),
            repeated_handlers=_repeated_handlers(process),
            rounds=rounds,
        )
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
        _repeated_hooks(process, steps),
        kept.wrapped if kept is not None else (),
        _repeated_handlers(process),
        rounds,
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


def _repeated_hooks(process: ProcessRecording, steps: Selection) -> tuple[RepeatedHooks, ...]:
    """By the lines that were timed after they were counted."""
    kept, window = process.growth, process.later_lines
    if kept is None or not kept.alike_hooks or not isinstance(window, LinesWindow):
        return ()
    took = _ms_by_line(window, steps)

    def ms(one: AlikeHooks) -> float:
        name = (one.function.file, _short(one.function.function))
        return sum(ms for (site, _), ms in took.items() if (site.file, _short(site.function)) == name)

    found = [RepeatedHooks(one, ms(one), window.first_step) for one in kept.alike_hooks]
    return tuple(sorted(found, key=lambda one: -one.ms))


def _repeated_handlers(process: ProcessRecording) -> tuple[RepeatedHandlers, ...]:
    kept = process.growth
    return () if kept is None else tuple(RepeatedHandlers(one, kept.step) for one in kept.alike_handlers)


def _short(function: str) -> str:
    """`record` of `Report.record`."""
    return function.rpartition(".")[2]


def _ms_by_line(window: LinesWindow, steps: Selection) -> dict[tuple[Site, str], float]:
    """Milliseconds per step of each line and part, around the time of a window."""
    length = {part: steps.around(window.first_step, values) for part, values in _by_part(steps).items()}
    took: dict[tuple[Site, str], float] = {}
    for line in window.lines:
        key = (line.site, line.part)
        took[key] = took.get(key, 0.0) + line.share * length.get(line.part, 0.0)
    return took


def _lines(process: ProcessRecording, steps: Selection, found: Trend) -> tuple[GrowingLine, ...]:
    first, later = process.code_lines, process.later_lines
    if not isinstance(first, LinesWindow) or not isinstance(later, LinesWindow) or found.grown_ms <= 0:
        return ()
    wall = steps.column("wall_us") / 1000
    longer_ms = steps.around(later.first_step, wall) - steps.around(first.first_step, wall)
    if longer_ms <= 0:
        return ()
    before, after = _ms_by_line(first, steps), _ms_by_line(later, steps)
    grown = [
        GrowingLine(site, part, before.get((site, part), 0.0), took, (took - before.get((site, part), 0.0)) / longer_ms)
        for (site, part), took in after.items()
        if took > before.get((site, part), 0.0)
    ]
    return tuple(sorted(grown, key=lambda line: -line.share))
