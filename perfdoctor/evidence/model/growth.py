"""Steps that get longer, and what grows with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...recording.base import Missing, Site
from ...recording.growth import (
    AlikeHandlers,
    AlikeHooks,
    GrowingContainer,
    GrowingGraph,
    GrowingHooks,
    GrowingTensor,
    Wrapped,
)
from .step import Parts


@dataclass(frozen=True, slots=True)
class Trend:
    """How the steady step's length changes, by medians of blocks of steps: a hiccup, or a few, do not move it."""

    steps: int
    """From the first steady one to the last."""
    early_ms: float
    """Of the first blocks."""
    late_ms: float
    """Of the last step, by the trend: the last blocks may have met a neighbour."""
    low: float
    """Growth over those steps as a share of `early_ms`: the ends of its 99 % interval (Sen's, from Kendall's tau)."""
    high: float
    is_gradual: bool
    """Both halves grow, each at a quarter of the common rate or more: not one jump. Beside a busy neighbour the CPU
    time of the training thread may say so where the steps' length does not."""
    parts: Parts
    """What each part of the step gained, milliseconds."""
    cpu_ms: float
    """What the CPU time of the training thread gained."""

    @property
    def grown_ms(self) -> float:
        return self.late_ms - self.early_ms


@dataclass(frozen=True, slots=True)
class GrowingLine:
    """A line of the user's code that was timed in two windows."""

    site: Site
    part: str
    early_ms: float
    """Per step, in ordinary steps around the first window; 0 where it was not seen there."""
    late_ms: float
    share: float
    """Of what the steps around the later window take longer than those around the first."""


@dataclass(frozen=True, slots=True)
class SlowerBatches:
    """Making a batch takes longer and longer, in a worker or in the training process: medians over the workers."""

    dataset: str
    """Class of the data set."""
    num_workers: int
    early_ms: float
    """Per batch, where it is made."""
    late_ms: float
    low: float
    """Growth as a share of `early_ms`: the lower end of its 99 % interval."""
    wait_ms: float
    """What the loop waits longer for that, per step in the end: workers make batches side by side."""
    getitem_ms: float
    """Of the growth, before `collate_fn`."""
    site: Site | None
    """The line that made the loader."""
    containers: tuple[GrowingContainer, ...] = ()
    """Within reach of the data set in a worker; those of the training process are `StepGrowth.containers`."""
    lines: tuple[GrowingLine, ...] = ()
    """Of the data set and `collate_fn`, per batch, the fastest first; their share is that of the growth."""


@dataclass(frozen=True, slots=True)
class Slowing:
    """Something outside of the job's code that takes more of every step, the longer the job runs."""

    kind: Literal["swapping", "throttled", "lower-clock", "page-faults", "gpu-clock", "cuda-fragmentation"]
    early: float
    """Over the first third of the steps. Swapping: the share of time in which some task waited for memory. Throttled:
    the share of time for which the control group was stopped. Clocks: MHz. Page faults: per step. Fragmentation: calls
    of the driver's allocator per step, those that give memory back among them."""
    late: float
    """Over the last third."""
    grown_ms: float
    """What a step takes longer for it in the last third than in the first; the most where `least_ms` says so."""
    least_ms: float | None = None
    """The least, where that is known in orders of magnitude only."""
    beside: tuple[float, float] | None = None
    """In the first and the last third: degrees Celsius of the GPU, bytes reserved on the device and in no use."""


@dataclass(frozen=True, slots=True)
class RepeatedHooks:
    """A hook that every call runs several times."""

    found: AlikeHooks
    ms: float
    """Per step, in the lines of its function, as they were timed when it was there so often."""
    step: int
    """When that was."""


@dataclass(frozen=True, slots=True)
class RepeatedHandlers:
    """Handlers that write each log record several times."""

    found: AlikeHandlers
    step: int
    """When they were counted."""


@dataclass(frozen=True, slots=True)
class LongerRounds:
    """What the loop does once in many steps, an evaluation say, goes through all that it has kept so far."""

    every: int
    """Steps from one to the next."""
    count: int
    """That were seen, without the first, which warms up."""
    early_ms: float
    """What such a step takes beyond the usual one: the first third of them."""
    late_ms: float
    """The last third."""
    longer_ms: float
    """What they take longer than the early ones, in the mean."""
    kept: GrowingContainer
    gone_through_at: Site
    """The first line that names it where nothing is added, and that ran in such a step."""


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """All that is known about one rank's steps getting longer."""

    trend: Trend | Missing
    containers: tuple[GrowingContainer, ...] = ()
    graphs: tuple[GrowingGraph, ...] = ()
    lines: tuple[GrowingLine, ...] = ()
    """Those that grew, the fastest first; empty where nothing that is kept grew, or no second window opened."""
    tensors: tuple[GrowingTensor, ...] = ()
    batches: SlowerBatches | None = None
    """None where batches take as long as they did at first, or were not timed often enough."""
    slowing: tuple[Slowing, ...] = ()
    """Those that grew with the steps, the largest first."""
    planned_steps: int = 0
    """That the loop is going to take in all; 0 where that is not known."""
    hooks: tuple[GrowingHooks, ...] = ()
    """That pile up."""
    repeated_hooks: tuple[RepeatedHooks, ...] = ()
    """The dearest first."""
    wrapped: tuple[Wrapped, ...] = ()
    """Again and again, the deepest first."""
    repeated_handlers: tuple[RepeatedHandlers, ...] = ()
    """Those that are there most often first."""
    rounds: LongerRounds | None = None
    """None where what comes once in many steps takes as long as at first, or nothing is known to be kept for it."""
