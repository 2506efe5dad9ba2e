"""What torch.compile compiled, and when."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Site


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
    irregular: bool
    """Whether steps that compile are left out of the steady step."""
    breaks: tuple[GraphBreak, ...]
    """By place."""
    given_up: tuple[Recompiled, ...]
    """Functions that Dynamo will compile no more, with what made it give up; they run in Python."""
    called_at: Site | None
    """The line that first called torch.compile."""
