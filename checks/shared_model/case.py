"""Forwards of several threads in one process: who waits for whom, what a step can be billed for, and from where on."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import compute
from perfdoctor.api.findings import Measurement, milliseconds, share
from perfdoctor.api.quantities import Cause, Concurrency, Evidence, Host, LockWaits, Missing, Step

from .._shared.pauses import looked_at


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.10
    """Share of the step that a fix may save, at most: predictions are wide, and less is not worth a redesign."""
    error_share: float = 0.40
    """A judgement: threads then hardly help, or harm."""
    overlapped: float = 0.20
    """Share of forwards that overlap: with fewer, threads seldom meet."""
    blocked: float = 0.20
    """Share of an overlapping forward spent waiting for a lock; kernels of a millisecond leave 2 to 10 %."""
    useful: float = 1.25
    """Threads' worth of work, up to which several threads are worth no more than one; the measure errs by 10 %."""
    saturated: float = 1.5
    """Forwards under way on average, also while there are none: below it, threads are idle because nobody asks."""
    small_operators: float = 0.5
    """What a second request adds to the operators' time, below which most of it is overhead; large kernels double."""
    team_blocked_op_ms: float = 0.3
    """With several intra-op threads a wait may be for their team. Operators shorter than this are too short for it."""
    team_gain: float = 0.20
    """What one intra-op thread must save of the operators' time: beside other threads timing is noisy."""
    occupied: float = 0.70
    """Share of the time in which a thread is inside the model though no two are: a lock's doing."""
    waiters: float = 0.5
    """Threads that stand before the model per measured forward."""


MIN_MEASURED = 20
"""Fewer measured forwards do not make a mean."""


@dataclass(frozen=True, slots=True)
class Forwards:
    """What was seen of the threads, and what follows from it."""

    evidence: Evidence
    step: Step
    seen: Concurrency

    @property
    def usable(self) -> float:
        """CPUs that others leave to this rank."""
        free = self.evidence.machine.usable_cpus - self._neighbours
        return max(1.0, free / max(1, self.evidence.job.local_ranks))

    @property
    def _neighbours(self) -> float:
        host = self.evidence.host
        return 0.0 if isinstance(host, Missing) else host.others_cpus

    @property
    def intra_op(self) -> int:
        threads = self.evidence.threads
        return 1 if isinstance(threads, Missing) else threads.intra_op

    @property
    def serving(self) -> bool:
        """The step is one forward of one of the threads; else the threads work beside a training loop."""
        return self.step.boundary != "optimizer"

    @property
    def beside_training(self) -> tuple[LockWaits, Host] | None:
        """What looks at all threads have shown, and the CPUs meanwhile; None where no loop trains, or after too few
        looks."""
        seen, host = looked_at(self.evidence), self.evidence.host
        if self.serving or seen is None or isinstance(host, Missing):
            return None
        return seen, host

    @property
    def blocked(self) -> float:
        """Share of an overlapping forward that it waits, beyond what it does without company, and beyond what the
        hypervisor may have kept it waiting."""
        alone = self.seen.blocked_alone_share
        return max(0.0, self.seen.blocked_share - (0.0 if isinstance(alone, Missing) else alone) - self._stolen)

    @property
    def _stolen(self) -> float:
        """Share of a forward in which the hypervisor ran other machines, at least. Some kernels count that as CPU time,
        and some as nothing at all, where it looks like a wait for a lock."""
        host = self.evidence.host
        steal = 0.0 if isinstance(host, Missing) else host.steal_share
        return min(1.0, steal * self.seen.cpu_ms / max(1e-9, self.seen.wall_ms))

    @property
    def useful(self) -> float:
        """How many threads without company would do as many forwards, on CPUs that nobody steals from."""
        wall_ms = self.seen.wall_ms * (1 - self._stolen)
        return self.seen.occupied_share * self.seen.least_cpu_ms / max(1e-9, wall_ms)

    def overlap(self, share_of_forwards: float) -> bool:
        """Whether so many of them do, and enough were measured to say more about it."""
        return self.seen.overlapped_share >= share_of_forwards and self.seen.measured >= MIN_MEASURED

    def shared(self) -> tuple[Measurement, ...]:
        seen = self.seen
        return (
            Measurement("threads", seen.threads, "count", "threads that call a model"),
            share("overlapped", seen.overlapped_share, "of forward passes overlap with another thread's"),
            Measurement("in_flight", round(seen.in_flight, 1), "count", "forward passes under way at once"),
            milliseconds("wall_ms", seen.wall_ms, "one forward pass"),
            milliseconds("cpu_ms", seen.cpu_ms, "CPU time of one overlapping forward pass"),
            Measurement("useful", round(self.useful, 1), "count", "threads without company that would do as much"),
            share("blocked", self.blocked, "of an overlapping forward pass waiting for a lock"),
            share("delay", seen.delay_share, "of an overlapping forward pass waiting for a CPU"),
            *(
                ()
                if isinstance(seen.backlog, Missing)
                else (Measurement("backlog", round(seen.backlog), "count", "requests queued up"),)
            ),
            Measurement("usable", self.usable, "count", "CPUs left to the job"),
        )

    @property
    def running(self) -> tuple[float, float]:
        """Share of the time that a thread has a CPU once the fix is in, at best and at worst. At worst the wait for
        CPUs stays as it is; at best only the neighbours' part of it."""
        cpus = self.evidence.machine.usable_cpus
        neighbours = min(1.0, self._neighbours / cpus) if cpus > 0 else 0.0
        return max(0.05, 1 - neighbours * self.seen.delay_share), max(0.05, 1 - self.seen.delay_share)

    @property
    def whole_ms(self) -> float:
        """What of a step those forwards can be billed for."""
        parts = self.step.parts
        if self.serving:
            return parts.forward
        if self.evidence.on_cuda:
            return self.blocked * parts.forward
        split = compute(self.evidence)
        return 0.0 if isinstance(split, Missing) else split.ms(Cause.BLOCKED)

    @property
    def beside_ms(self) -> float:
        """Of a step, what a thread does between two forwards while requests are queued up: a batch does at best that,
        too, once for all of them. Without a queue it may be waiting for a request."""
        backlog = self.seen.backlog
        return self.step.parts.other if self.serving and not isinstance(backlog, Missing) and backlog >= 1 else 0.0
