"""Every step of a rank one by one, for those who draw them; what judges looks at the steady ones only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..recording.model import Ints, ProcessRecording, Recording
from .steady import BURSTY, SMOOTH, untouched

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The steps of one rank in order, without those in windows or trials, which are not as long as the job's own."""

    rank: int
    step: Ints
    """Their numbers."""
    end_s: Floats
    """When each ended, seconds after the first process of the job began."""
    parts: Mapping[str, Floats]
    """Fields of `Parts` -> milliseconds; they add up to the step."""

    @property
    def step_ms(self) -> Floats:
        """How long each took."""
        return _sum(self.parts)

    def averaged(self, most: int) -> StepSeries:
        """At most so many points: the means of neighbouring steps, as many in each but the last."""
        size = -(-len(self.step) // most)
        if size <= 1:
            return self
        starts = np.arange(0, len(self.step), size)
        counts = np.diff([*starts, len(self.step)])
        last = starts + counts - 1
        parts = {name: np.add.reduceat(ms, starts) / counts for name, ms in self.parts.items()}
        return StepSeries(self.rank, self.step[last], self.end_s[last], parts)


def series(recording: Recording) -> tuple[StepSeries, ...]:
    """Of every rank."""
    began = min((process.header.t for process in recording.processes), default=0)
    return tuple(_of_rank(untouched(process), began) for process in recording.ranks)


def _of_rank(process: ProcessRecording, began_ns: int) -> StepSeries:
    rows = process.steps.where(process.steps["marked"] == 0)
    parts = {name: rows[f"{name}_us"] / 1000 for name in (*BURSTY, *SMOOTH)}
    parts["other"] = (rows["wall_us"] / 1000 - _sum(parts)).clip(min=0)
    return StepSeries(process.rank, rows["step"], (rows["end_ns"] - began_ns) / 1e9, parts)


def _sum(parts: Mapping[str, Floats]) -> Floats:
    total: Floats = np.array(list(parts.values())).sum(axis=0)
    return total
