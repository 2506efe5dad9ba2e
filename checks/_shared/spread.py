"""What is done in every step, or only before one of many: how it is weighed and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from perfdoctor.api.findings import Cost, Measurement, Part
from perfdoctor.api.quantities import EpochStarts, Equivalent, Missing, RepeatedWork, Step

W = TypeVar("W", Equivalent, RepeatedWork)


@dataclass(frozen=True, slots=True)
class Spread:
    """How often it is done, so that it can be told per step."""

    every: int = 1
    """Steps from one time to the next."""
    part: Part = Part.COMPUTE

    @classmethod
    def of(cls, starts: EpochStarts) -> Spread:
        """What lies between two steps."""
        return cls(starts.every_steps, Part.COMPUTE if starts.regular else Part.EPOCH)

    @property
    def clause(self) -> str:
        """A clause of a message that has told what it costs per step; it needs `measured`."""
        return "" if self.every == 1 else ", all of it in one step of {every}"

    @property
    def each(self) -> str:
        """What a number of times is counted by."""
        return "per step" if self.every == 1 else "each time"

    def measured(self, cost: Cost) -> tuple[Measurement, ...]:
        """What it costs, and how often it is done."""
        if self.every == 1:
            return cost.measured()
        beside = "on top of the steady step" if self.part is Part.EPOCH else "of the step"
        every = Measurement("every", self.every, "count", "steps from one time to the next")
        return (*cost.measured("that per step", beside), every)

    def share(self, step: Step, ms: float) -> float:
        """Of so many milliseconds per step, of all the time."""
        whole = step.step_ms + (step.irregular_ms if self.part is Part.EPOCH else 0.0)
        return ms / whole if whole > 0 else 0.0


def spread(
    in_steps: tuple[W, ...] | Missing, between: tuple[W, ...], starts: EpochStarts | None
) -> Iterator[tuple[W, Spread]]:
    """What every step does, and what lies between two of them (`starts`) at lines that are none of a step's."""
    seen = () if isinstance(in_steps, Missing) else in_steps
    yield from ((one, Spread()) for one in seen)
    if starts is not None:
        told = {one.at for one in seen}
        yield from ((one, Spread.of(starts)) for one in between if one.at not in told)


def starts_of(seen: EpochStarts | Missing | None) -> EpochStarts | None:
    """None where nothing was seen to come again."""
    return None if isinstance(seen, Missing) else seen
