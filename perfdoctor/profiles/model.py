"""A profile: where the time of a step goes, by stacks of lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..recording.base import Site

Unit = Literal["step", "batch"]


@dataclass(frozen=True, slots=True)
class Frame:
    """A line on a stack."""

    site: Site
    users: bool
    """Whether it is the user's; of a job that is in no file (`python -c`, a notebook), a line that was typed."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack, in one part of the step."""

    frames: tuple[Frame, ...]
    """The outermost first; empty where only perfdoctor ran."""
    part: str
    """As a step's parts are called."""
    samples: int
    """Moments at which it was met."""
    ms: float
    """Per step, or per batch of a worker."""

    @property
    def hot(self) -> int | None:
        """Index of the innermost line of the user's: what lies below it, it has called. None without any."""
        return next((at for at in range(len(self.frames) - 1, -1, -1) if self.frames[at].users), None)


@dataclass(frozen=True, slots=True)
class Below:
    """What a line spends its time in."""

    name: str
    """A function of a library, or an operator of torch."""
    share: float
    """Of the line's time; of operators, of what the line spends in operators."""


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's in one part of the step, with all that it calls in libraries and native code."""

    site: Site
    part: str
    samples: int
    ms: float
    """Per step, or per batch of a worker."""
    share: float
    """Of the step, or of making a batch."""
    functions: tuple[Below, ...] = ()
    """Functions of libraries, the innermost on the stack, the longest first; without the line's own."""
    operators: tuple[Below, ...] = ()
    """That it issues, the longest first; empty where the call-site window did not see it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One thread of one process; or the workers of a rank, together."""

    name: str
    """`rank 0`, `workers of rank 0`, `thread Prefetcher of rank 0`."""
    unit: Unit
    """What `ms` is per."""
    total_ms: float
    """The whole step, or the making of a batch."""
    count: int
    """Steady steps behind the numbers; batches that workers made."""
    samples: int
    stacks: tuple[Stack, ...]
    """The longest first."""
    lines: tuple[HotLine, ...]
    """The longest first."""
