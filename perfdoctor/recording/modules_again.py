"""Modules of the job that were called another way after its last step: once where a loop calls them often, side by side
where they take turns, with other rows."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Site


@dataclass(frozen=True, slots=True)
class InParts:
    """A module inside another one that a loop calls with one part of a batch, or of a sequence, after the other; no
    iteration needs the one before."""

    name: str
    kind: str
    at: Site
    """The user's line that leads to its calls."""
    loop: str
    """The first line of the loop."""
    calls_per_step: float
    milliseconds: float
    """Per step, forward and backward, with all modules that it holds, under the profiler."""
    batch: int
    """Samples of one call."""
    times: tuple[tuple[int, float], ...]
    """How many parts at once, and milliseconds forward and backward; from one upwards."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """Modules of one class that a loop calls one after the other, none of which needs the one before: their own passes
    and one with the weights of all side by side, which gives the same numbers."""

    name: str
    """Of the first one."""
    kind: str
    at: Site
    """The user's line that leads to their calls."""
    loop: str
    """The first line of the loop; "" for the gates of a cell, which are called without one."""
    members: int
    """In one such loop."""
    calls_per_step: float
    """Of the first one."""
    milliseconds: float
    """Per step, forward and backward, of all such loops at this line, under the profiler."""
    now_ms: float
    """Of one loop, forward and backward."""
    stacked_ms: float
    """In one call."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Modules of one class that compute all rows that they are given, though the result needs few of what each makes:
    the model's own passes as they are, and with each on the rows alone that it is needed for, which give the same."""

    name: str
    """Of the first one."""
    kind: str
    at: Site
    """The user's line that leads to their calls."""
    members: int
    """Of one such set."""
    calls_per_step: float
    """Of the first one."""
    milliseconds: float
    """Per step, forward and backward, of all such sets at this line, under the profiler."""
    live: float
    """Share of each one's rows that are needed, of those that any is needed for."""
    now_ms: float
    """Of all passes of the model, forward and backward."""
    routed_ms: float


@dataclass(frozen=True, slots=True)
class InTurn:
    """A module that a loop calls for one position of a sequence after the other, each time with the state that it has
    just returned, and by nothing else does one call need the one before; or with one position more each time. Its own
    pass as it is called, and for many positions in one call, which gives the same numbers."""

    name: str
    kind: str
    at: Site
    """The user's line that calls it."""
    loop: str
    """The first line of the loop."""
    calls_per_step: float
    milliseconds: float
    """Per step, forward and backward, with all modules that it holds, under the profiler."""
    calls: int
    """Of one sequence."""
    together: int
    """Positions in the one call."""
    now_ms: float
    """Of a call for one position, or for half of them, forward and backward."""
    once_ms: float
    loop_line: int = 0
    """Where the loop begins."""
    by_prefix: bool = False
    """Whether each call is given all positions so far."""


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """A module inside another one that was given the same rows several times over: its own pass with all of them and
    with each once, which gives the same numbers."""

    name: str
    kind: str
    at: Site
    """The user's line that leads to its calls."""
    calls_per_step: float
    milliseconds: float
    """Per step, forward and backward, with all modules that it holds, under the profiler."""
    rows: int
    different: int
    """Rows that differ."""
    commonest: int
    """How often the commonest comes."""
    now_ms: float
    """Of a pass, forward and backward."""
    once_ms: float
