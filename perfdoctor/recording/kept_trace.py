"""The profiler's trace of the operator window, where it was kept, and the loop's borders in it."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing, Site

NOT_KEPT = Missing("no trace was kept", "record one with `perfdoctor check --trace FILE`")


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step of the window, ns of CLOCK_MONOTONIC."""

    step: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class TracedPart:
    """A stretch of the loop in one part of a step, ns of CLOCK_MONOTONIC: they follow one another and never overlap."""

    part: str
    """As a step's parts are called, or `perfdoctor` for what is none of the job's, between two steps."""
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A module whose calls have ranges in the trace: its place in the tuple is their number."""

    name: str
    """As in `named_modules()` of the module that the loop calls; "" for that one itself."""
    kind: str
    """Its class."""
    called_at: Site | None = None
    """The innermost line of the user's in its first call."""
    made_at: Site | None = None
    """The line that made it."""


@dataclass(frozen=True, slots=True)
class KeptTrace:
    """One process."""

    file: str
    """In the run directory, as torch wrote it."""
    clock_ns: int
    """Unix time less CLOCK_MONOTONIC: what to add to get the trace's clock."""
    thread: int
    """The kernel's number of the thread that the loop runs on."""
    steps: tuple[TracedStep, ...]
    parts: tuple[TracedPart, ...]
    parts_left_out: int = 0
    """There were too many."""
    layers: tuple[TracedLayer, ...] = ()
