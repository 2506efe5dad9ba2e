"""What one arm did in a launch, and what a pair of launches says. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from ..launch.control import Turn
from .decision import trimmed_mean
from .metrics import metrics

CORE, ALL_IN = "step_time.core", "step_time.all_in"
_GENERATIONS = ("gen0", "gen1", "gen2")


class Side(NamedTuple):
    """One arm of a pair."""

    core_ms: float
    """The uncontended step."""
    all_in_ms: float
    """The step with everything that comes now and then."""
    wait_share: float
    """Wait for data, of all steps."""
    gc_share: float
    """Garbage collections, of all steps."""
    peak_rss_bytes: float
    collections: tuple[float, ...] = ()
    """Garbage collections of each generation per 100 steps, counted from a full one; of launches that take turns, as
    what follows."""
    faults: float = 0.0
    """Page faults per step."""
    delay_share: float = 0.0
    """Runnable without a CPU, of all steps; 0 where the system does not say."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A launch of each arm, or two of each that ran alone."""

    before: Side
    after: Side
    core: float
    """Log-ratio of the uncontended step, after to before."""
    all_in: float
    control: float | None = None
    """As `core`, of the A/A control to the arm before; None in a pair without one."""

    def both(self, name: str) -> tuple[float, float]:
        """A number of each arm, by the name of the field of `Side`."""
        return getattr(self.before, name), getattr(self.after, name)


def ratios(pairs: Iterable[Pair]) -> dict[str, list[float]]:
    """The log-ratios of all pairs, by timed metric."""
    return {CORE: [pair.core for pair in pairs], ALL_IN: [pair.all_in for pair in pairs]}


@dataclass(slots=True)
class Sample:
    """What one arm did in one launch of turns."""

    turns: list[Turn] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    peak_rss_bytes: int = 0

    @property
    def side(self) -> Side:
        """Over all turns. The uncontended step is the trimmed mean of the slices' shortest steps."""
        turns = self.turns
        steps, wall_ns = max(1, sum(turn.steps for turn in turns)), max(1, sum(turn.wall_ns for turn in turns))
        return Side(
            core_ms=trimmed_mean([turn.min_ns for turn in turns]) / 1e6,
            all_in_ms=trimmed_mean([turn.wall_ns / max(1, turn.steps) for turn in turns]) / 1e6,
            wait_share=sum(turn.wait_ns for turn in turns) / wall_ns,
            gc_share=sum(turn.gc_ns for turn in turns) / wall_ns,
            peak_rss_bytes=float(self.peak_rss_bytes),
            collections=tuple(100 * sum(getattr(turn, name) for turn in turns) / steps for name in _GENERATIONS),
            faults=sum(turn.faults for turn in turns) / steps,
            delay_share=sum(max(0, turn.delay_ns) for turn in turns) / wall_ns,
        )


def ratio_core(before: Sample, after: Sample) -> float:
    """Log-ratio of the shortest steps, slice by slice, 20 % trimmed."""
    return trimmed_mean([math.log(b.min_ns / a.min_ns) for a, b in zip(before.turns, after.turns, strict=True)])


def ratio_all_in(before: Sample, after: Sample) -> float:
    """Log-ratio of the mean steps, slice by slice, 20 % trimmed."""
    pairs = zip(before.turns, after.turns, strict=True)
    return trimmed_mean([math.log((b.wall_ns / b.steps) / (a.wall_ns / a.steps)) for a, b in pairs])


def of_turns(was: Sample, now: Sample, control: Sample | None) -> Pair:
    """A pair of launches that took turns, an A/A control perhaps with them."""
    against_itself = None if control is None else ratio_core(was, control)
    return Pair(was.side, now.side, ratio_core(was, now), ratio_all_in(was, now), against_itself)


def of_launches(was: Sequence[Diagnosis], now: Sequence[Diagnosis]) -> Pair:
    """Of launches that ran alone: medians of steps for the uncontended step, means for the other.

    Raises PerfdoctorError when one of them gave too little.
    """
    before, after = _side(was), _side(now)
    core, all_in = after.core_ms / before.core_ms, after.all_in_ms / before.all_in_ms
    return Pair(before, after, math.log(core), math.log(all_in))


def _side(launches: Sequence[Diagnosis]) -> Side:
    all_in, wait, gc, rss = (
        _mean(launches, name) for name in ("step_time_ms", "data_wait_share", "gc_share", "peak_rss_bytes")
    )
    return Side(_median_step(launches), all_in, wait, gc, rss)


def _mean(launches: Sequence[Diagnosis], metric: str) -> float:
    """Geometric where it can be."""
    values = [metrics(diagnosis.evidence)[metric].value for diagnosis in launches]
    numbers = [value for value in values if not isinstance(value, Missing)]
    if len(numbers) < len(values):
        raise PerfdoctorError(
            f"a launch gave no {metric}: {next(v for v in values if isinstance(v, Missing))}",
            slug="too-few-steps",
            advice="let the job run longer",
            exit_code=Exit.NOT_MEASURABLE,
        )
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if min(numbers) > 0 else sum(numbers) / len(numbers)


def _median_step(launches: Sequence[Diagnosis]) -> float:
    steps = [diagnosis.evidence.step for diagnosis in launches]
    times = [step.median_ms for step in steps if not isinstance(step, Missing)]
    return math.exp(sum(map(math.log, times)) / len(times))
