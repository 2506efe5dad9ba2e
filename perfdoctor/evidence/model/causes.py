"""What time goes into: causes, and how a stretch of time is divided among them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...recording.base import Missing


class Cause(str, Enum):
    """What a stretch of the steady step goes into. The order of precedence is that of `perfdoctor.evidence.causes`."""

    START = "start"
    """Building iterators and starting workers, until their first batch."""
    TRANSFORM = "transform"
    """The data set, on a CPU."""
    STORAGE = "storage"
    """The data set, neither on a CPU nor waiting for one: disk, network, sleep."""
    COLLATE = "collate"
    HANDOVER = "hand-over"
    """Receiving batches that were ready: the queue, the pipe, unpickling."""
    BOOKKEEPING = "bookkeeping"
    """What a loader without workers takes beside making a batch."""
    GC = "gc"
    QUOTA = "quota"
    """Without a CPU, because the control group had used up its time."""
    OWN_THREADS = "own-threads"
    """Without a CPU, because the job's own threads and workers want more of them than there are."""
    NEIGHBOURS = "neighbours"
    """Without a CPU, because processes of others had it."""
    NO_CPU = "no-cpu"
    """Without a CPU, and who had it is not known."""
    RUNNING = "running"
    """On a CPU, page faults apart."""
    PAGE_FAULTS = "page-faults"
    BLOCKED = "blocked"
    """Neither on a CPU nor waiting for one: locks, other threads, storage, a device."""
    THREADS = "threads"
    """Another number of intra-op threads would save it."""
    TYPES = "types"
    """float32 would save it."""
    VECTOR_EXTENSIONS = "vector-extensions"
    """All of the CPU's vector instructions would save it."""
    UNEXPLAINED = "unexplained"


WITHOUT_CPU = (Cause.QUOTA, Cause.OWN_THREADS, Cause.NEIGHBOURS, Cause.NO_CPU)
MAKING = (Cause.TRANSFORM, Cause.STORAGE, Cause.COLLATE)
"""The parts of making a batch, when there is a CPU for it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one cause explains of a stretch of time."""

    cause: Cause
    ms: float | Missing
    """Per steady step, never negative. What is Missing is still inside `UNEXPLAINED`, or in the share that it is part
    of, as its reason says."""
    basis: str
    """What it was told from, as a clause."""


@dataclass(frozen=True, slots=True)
class Lack:
    """The job's want of CPUs, and who had them."""

    thread_ms: float | Missing
    """Per step, the training thread runnable without a CPU."""
    job_share: float | Missing
    """Of the runnable time of all the job's threads; of the training thread where no more is known."""
    stopped_ms: float
    """Per step, the group stopped by its quota: a thread that is stopped need not count as runnable."""
    owners: tuple[tuple[Cause, float], ...] | Missing
    """The causes of `WITHOUT_CPU` with the fraction of the lack that is theirs; they sum up to 1."""
    demand: int
    """Intra-op threads of all ranks on this machine."""
    usable_cpus: float
    throttled: bool
    """The quota stopped the job in more than a few of its periods."""
    other_processes: bool | Missing
    """Processes of others used enough CPU to be the cause."""

    @property
    def team_too_large(self) -> bool:
        """More threads than CPUs: a quota of 1.5 still gives two threads something to do."""
        return self.demand > -(-self.usable_cpus // 1)

    def fraction(self, cause: Cause) -> float:
        """Of the lack; 0 when nobody is known."""
        return 0.0 if isinstance(self.owners, Missing) else dict(self.owners).get(cause, 0.0)


@dataclass(frozen=True, slots=True)
class InputWait:
    """The exposed wait for data of the steady step, by cause."""

    wait_ms: float
    """What of the wait delays the step."""
    hidden_ms: float
    """What of it passes while a device is busy."""
    shares: tuple[Share, ...]
    """They sum up to `wait_ms`."""
    making_ms: float
    """What making batches explains of it, lack of a CPU included."""
    blamed: Cause
    """Who gets the blame for what is left after `START`, or `START` itself."""
    blamed_ms: float
    """What a finding about it may be billed: all that is left after `START`, unless the cause explains less than half
    of it and the rest is a loader's own bookkeeping."""

    def ms(self, *causes: Cause) -> float:
        return _sum(self.shares, causes)


@dataclass(frozen=True, slots=True)
class Compute:
    """The steady step without its wait for data, by cause."""

    whole_ms: float
    shares: tuple[Share, ...]
    """They sum up to `whole_ms`."""
    savable: tuple[Share, ...]
    """Not further parts, but what timings say another setting would take off them: each of what the one before leaves,
    so that together they never exceed the whole."""

    def ms(self, *causes: Cause) -> float:
        return _sum(self.shares, causes)

    def savable_ms(self, *causes: Cause) -> float:
        return _sum(self.savable, causes)


def _sum(shares: tuple[Share, ...], causes: tuple[Cause, ...]) -> float:
    return sum(share.ms for share in shares if share.cause in causes and not isinstance(share.ms, Missing))
