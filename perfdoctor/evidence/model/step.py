"""The steady step and the pauses in it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from ...recording.base import Missing, Site
from ...recording.process import BoundaryKind

Boundary = BoundaryKind | Literal["profiler", "trace"]
"""What a step may end at; of a trace, the profiler's own steps, or all of it where none is marked."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A time in parts, milliseconds: each field is one."""

    @property
    def total(self) -> float:
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, float]:
        """Part name -> milliseconds, in the order of the anatomy bar."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Parts(Divided):
    """Where the steady step goes on the host clock, milliseconds; the sum is `Step.step_ms`."""

    input_wait: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    checkpoint: float = 0.0
    gc: float = 0.0
    other: float = 0.0
    communication: float = 0.0
    """Waiting for other ranks and for what is sent between them; the other parts are without it."""
    logging: float = 0.0
    """Printing, progress bars and trackers."""

    @property
    def compute(self) -> float:
        """Forward, backward and optimizer."""
        return self.forward + self.backward + self.optimizer

    @property
    def alone(self) -> float:
        """What one thread does while the others of its team have nothing to do."""
        return self.gc + self.checkpoint + self.logging


@dataclass(frozen=True, slots=True)
class Step:
    """The steady step of one rank.

    `step_ms` is the sum of `parts`. Bursty parts (`input_wait`, `gc`, `checkpoint`, `communication`, `logging`) are
    means, because a cost that comes every 50th step is a cost; the others are 5 % trimmed means, so that one hiccup is
    not. All are
    means when several threads call a model: they wait for each other in bursts.
    """

    boundary: Boundary
    count: int
    """Steady steps behind the numbers."""
    seconds: float
    """Their summed wall time."""
    warmup: int
    windowed: int
    """Steps left out because a window (profiler, call sites) was open or just closed."""
    irregular: int
    """Steps left out because they held something else: an epoch's start, a validation run."""
    irregular_s: float
    """Their summed wall time."""
    irregular_ms: float
    """Time in irregular steps beyond a steady step each, divided by all steps after the warm-up."""
    step_ms: float
    parts: Parts
    median_ms: float
    mad_ms: float
    low_ms: float
    high_ms: float
    """95 % bootstrap interval of `step_ms`."""
    cpu_ms: float
    """CPU time of the training thread per step."""
    process_cpu_ms: float | Missing
    """User and system CPU time of the whole process per step."""
    run_delay_ms: float | Missing
    """Time per step that the training thread was runnable but had no CPU."""
    micro_batches: float
    """Root forwards or batches per step."""
    samples: float | Missing
    """Samples per step."""
    first_step_s: float | Missing
    """From the start of the process to the end of its first step."""
    cycle: int = 1
    """Steps after which the loop does the same again, one of them unlike the others: numbers are those of the mean."""
    slope: float = 0.0
    """Relative growth of the step over the steady span: 0.1 means 10 % slower at its end."""

    @property
    def half_width(self) -> float:
        """Of the interval of the mean, as a share of it."""
        return (self.high_ms - self.low_ms) / 2 / self.step_ms if self.step_ms > 0 else 0.0

    @property
    def regular_share(self) -> float:
        """Of the time after the warm-up, windows apart, that was in steady steps."""
        return self.seconds / (self.seconds + self.irregular_s) if self.seconds > 0 else 0.0

    @property
    def working_ms(self) -> float:
        """The step without its waits for data and other ranks and without collections: what types, threads and CPUs
        act on."""
        parts = self.parts
        return max(0.0, self.step_ms - parts.input_wait - parts.gc - parts.communication)


@dataclass(frozen=True, slots=True)
class CollectSite:
    """A line that calls `gc.collect`."""

    site: Site
    calls_per_step: float
    ms_per_step: float
    pause_ms: float
    is_rare: bool = False
    """In few steps, which the steady step is told without: every tenth, or where an epoch ends."""


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """Python's cyclic garbage collector in the training process, over the steady steps."""

    ms_per_step: float
    automatic_ms_per_step: float
    per_step: tuple[float, float, float]
    """Collections of generation 0, 1 and 2 per step, automatic and explicit."""
    longest_pause_ms: float
    full_collected: float
    """Objects freed per generation-2 collection, mean."""
    explicit: tuple[CollectSite, ...]
    tracked_objects: int | Missing
    enabled: bool
