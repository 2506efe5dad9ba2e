"""What torch.compile compiled, and when."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site

FORGOTTEN = "torch.compiler.reset() forgets what was compiled"
"""The reason where a function is compiled again as if for the first time."""


@dataclass(frozen=True, slots=True)
class Recompiled:
    """A function that was compiled again while the loop ran, after the first half of the steady span."""

    site: Site | None
    """The function; None where it is a library's (`nn.Sequential` compiled as a whole)."""
    count: int
    ms: float
    reasons: tuple[str, ...]
    """Guards that failed, the commonest first."""


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A line at which a compiled function goes on in Python."""

    site: Site
    reason: str
    """What breaks; "" where Dynamo does not say."""


@dataclass(frozen=True, slots=True)
class CompiledAgain:
    """All that was compiled again after the warm-up, whenever it was, of functions that have been compiled before."""

    count: int
    steps: int
    """In which that may have happened: those after the warm-up."""
    ms: float
    """By Dynamo's own durations, backward passes included."""
    beyond_ms: float
    """By how much the steps in which it happened are longer than the median of those in which nothing was compiled; 0
    where there are fewer than five of those. Guards that are looked through in vain and collections are in it too."""
    whole_count: int
    """In the warm-up too."""
    whole_ms: float
    """And what all of that took."""
    most: int = 0
    """Of `count`, those of one function."""

    @property
    def per_step_ms(self) -> float:
        return self.ms / max(1, self.steps)


@dataclass(frozen=True, slots=True)
class Compilation:
    """Dynamo's own record of one rank. The late half is that of the steady span: a job warms up for some steps."""

    count: int
    """Compilations in all, backward passes included."""
    seconds: float
    late_steps: int
    """Steps in the late half."""
    late_wall_ms: float
    """Their wall time."""
    late_ms: float
    """Of that, compiling."""
    recompiled: tuple[Recompiled, ...]
    """In the late half, the dearest first."""
    again: CompiledAgain
    eager_ms: float | Missing
    """Median of the steps before the first compilation, without the first two: the same loop in Python. Missing
    too where its batches were of another size then."""
    compiled_ms: float | Missing
    """Median of the steps after the first compilation in which nothing was compiled."""
    irregular: bool
    """Whether steps that compile are left out of the steady step."""
    breaks: tuple[GraphBreak, ...]
    """By place."""
    given_up: tuple[Recompiled, ...]
    """Functions that Dynamo will compile no more, with what made it give up; they run in Python."""
    called_at: Site | None
    """The line that first called torch.compile."""
    never_ran: bool = False
    """What torch.compile returned was not called once, so nothing was compiled."""
