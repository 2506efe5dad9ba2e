"""The ranks of a job beside each other: who waits for whom, and what sending takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.settings import ReducedModel
from .step import Parts

GRADIENTS, GRADIENTS_AGAIN, BUFFERS, SEARCH = "gradients", "gradients_again", "buffers", "search"
"""Collectives of DistributedDataParallel: the all-reduce behind a backward pass, a further one of the same model in the
same step, the broadcast of buffers before a
forward pass; and its search for parameters without a gradient, for which no rank waits."""
ALL_GATHER, REDUCE_SCATTER = "fsdp_all_gather", "fsdp_reduce_scatter"
"""Of FullyShardedDataParallel and `fully_shard`: of parameters, and of their gradients."""
FUNCTIONAL, PIPELINE = "wait_tensor", "pipeline"
"""What tensor parallel layers wait for each other in, and the stages of a pipeline."""

_NAMED = 3
"""Ranks that a report names, of however many."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One rank's steady step, in those steps that are steady on every rank."""

    rank: int
    parts: Parts
    """All but `communication` is the rank's own time."""
    cpu_ms: float
    """Of its training thread."""
    run_delay_ms: float | Missing
    """Its training thread was runnable without a CPU, per step."""
    late_share: float
    """Of the steps: in those it came last."""
    samples: float | Missing
    """Per step."""
    batch_bytes: float | Missing
    """Of one batch: the mean of those that were looked at. Longer sequences are no more samples."""
    throttled_ms: float = 0.0
    """For which a CPU quota stopped its control group, per step and CPU kept busy; 0 also where no group tells."""
    clock_mhz: float = 0.0
    """Of the CPUs that its training thread was on, mean; 0 where the system does not show it."""
    node: str = ""
    """Name of the machine that it ran on; "" where all ranks that were seen ran on one."""
    alike: int = 0
    """Ranks of one number do the same work; of two numbers they hold other parts of the model."""

    @property
    def own_ms(self) -> float:
        """From what the other ranks had finished too until it is ready for them again."""
        return self.parts.total - self.parts.communication


@dataclass(frozen=True, slots=True)
class Collective:
    """Calls of one kind in one line, per step; or the work of DistributedDataParallel, which has no line."""

    kind: str
    """torch's function, `all_reduce_scalar` for an `all_reduce` of a few numbers, or one of those above."""
    site: Site | None
    calls_per_step: float
    ms_per_step: float
    """On this rank, waiting for late ranks included."""
    least_ms: float
    """The least of all ranks: what it takes without waiting for anybody."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Ranks that take twice the usual own time in some steps, in which the others do not: all wait for them then."""

    ranks: tuple[int, ...]
    """The one that costs most first."""
    ms: float
    """That all lose by it, per step: mean over all steps."""
    low_ms: float
    """Lower end of its interval, 99 % by eighths of the steps; never negative."""
    share: float
    """Of the steps."""
    part: str
    """Of the step, in which they take longest compared with what it usually takes."""
    part_ms: float
    """By which they do, per step: mean over all steps."""


@dataclass(frozen=True, slots=True)
class SharedData:
    """A data set that the loop goes through on every rank, all of it: two of its samples are the same on all."""

    samples: int
    loader_at: Site | Missing
    """On the first rank."""


@dataclass(frozen=True, slots=True)
class Communication:
    """Durations only: no rank's clock is compared with another's."""

    steps: int
    """That were compared."""
    ranks: tuple[RankTimes, ...]
    """All that were recorded, by number."""
    late: int
    """The rank that the others wait for most; where all do different work (stages of a pipeline), the one that waits
    least, late by nothing."""
    late_ms: float
    """By how much longer its own time is than that of the next rank that is not late `beside` it, per step, early steps
    counted against it: what the job saves if they are like the others."""
    late_low_ms: float
    """Lower end of its interval, 99 % by eighths of the steps; never negative."""
    late_high_ms: float
    """The same with steps in which another rank was late counted as nothing."""
    exposed_ms: float
    """In collectives on the rank that waits least, step by step: sending, and nobody's lateness."""
    collectives: tuple[Collective, ...]
    """The dearest first."""
    model: ReducedModel | None
    """None without DistributedDataParallel."""
    beside: tuple[int, ...] = ()
    """Ranks that are late with it: they wait little longer, and all others much longer."""
    turns: Turns | None = None
    """None where no rank takes twice the usual time in any step."""
    stages: int = 0
    """Of the pipeline that the ranks are; 0 without one."""
    shard_bytes: tuple[int, ...] = ()
    """Of the parameters that `fully_shard` gathers together, group by group; empty without it."""
    resharded: int = 0
    """Of these groups, how many are gathered again for the backward pass."""
    left_out: tuple[int, ...] = ()
    """Ranks that were not compared, because they have no steady steps, or less than half as many as the others."""
    shared_data: SharedData | None = None
    """None where no such data set was seen."""
    judged: tuple[int, ...] = ()
    """Ranks of a large job that the checks looked at, by all that was recorded of them; empty where these are all."""

    @property
    def late_rank(self) -> RankTimes:
        return next(times for times in self.ranks if times.rank == self.late)

    @property
    def others(self) -> tuple[RankTimes, ...]:
        """Those that do the same work as the late one, and are not late; none where nobody does the same."""
        late = (self.late, *self.beside)
        return tuple(times for times in self.ranks if times.rank not in late and times.alike == self.late_rank.alike)

    @property
    def late_share(self) -> float:
        """Of the steps: in those one of the late ranks came last."""
        late = (self.late, *self.beside)
        return sum(times.late_share for times in self.ranks if times.rank in late)

    @property
    def late_node(self) -> str:
        """The node of which several ranks were seen, all of them late, and nobody else; "" without one."""
        node = self.late_rank.node
        there = {times.rank for times in self.ranks if node and times.node == node}
        return node if len(there) > 1 and there == {self.late, *self.beside} else ""

    @property
    def is_compared(self) -> bool:
        """Whether another rank does the same work as the late one."""
        return any(times.rank != self.late and times.alike == self.late_rank.alike for times in self.ranks)

    @property
    def longest(self) -> tuple[RankTimes, ...]:
        """The three ranks with most work of their own, the one with most first."""
        return tuple(sorted(self.ranks, key=lambda times: (-times.own_ms, times.rank))[:_NAMED])

    def own_ms(self, share: float) -> float:
        """A quantile of the ranks' own work per step: so many of them have at most that."""
        own = sorted(times.own_ms for times in self.ranks)
        return own[max(0, math.ceil(share * len(own)) - 1)]

    def waits_ms(self, rank: int) -> float:
        """What a rank waits for the late one, per step."""
        found = next((times.parts.communication for times in self.ranks if times.rank == rank), 0.0)
        return max(0.0, found - self.late_rank.parts.communication)

    def of_kind(self, kind: str) -> Collective | None:
        """The dearest; None where there is none."""
        return next((one for one in self.collectives if one.kind == kind), None)
