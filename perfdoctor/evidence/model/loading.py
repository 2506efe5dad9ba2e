"""Loaders, and making batches."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ...recording.base import NO_LINE, Missing, Site
from ...recording.lines import CodeLine, LateSharding, SameResult
from ...recording.loading import LoaderMade, SamplesAsked
from ...recording.repeats import Equivalent, RepeatedWork

NOT_ASKED = Missing("its samples were not asked for again", "let perfdoctor end the job (--steps)")
"""After the last step, which may be of no use to the job then."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Making one batch, wherever that happens (a worker, or the training process with `num_workers=0`).

    Milliseconds per batch. `getitem` is everything before `collate_fn`. Garbage collections are part of neither.
    """

    batches: int
    getitem_ms: float
    getitem_cpu_ms: float
    collate_ms: float
    collate_cpu_ms: float
    run_delay_ms: float
    """Runnable without a CPU, per batch."""
    read_bytes: float
    """Read through system calls per batch, page cache included."""
    batch_bytes: float | Missing
    """Tensor bytes of one batch."""
    gc_ms: float = 0.0
    """Garbage collections in a worker. In the training process they are a part of the step of their own: 0 here."""
    gc_line: Site | None = None
    """The line that asked for most of them in the workers; None where Python's collector ran by itself."""
    each_ms: tuple[float, ...] = ()
    """Making of single batches, about in the order in which the loop takes them; the latest thousand."""
    lines: tuple[CodeLine, ...] = ()
    """Of the data set and `collate_fn`, the most expensive first, with their share of making a batch; none where they
    are a library's, or no batch was made line by line."""
    same: tuple[SameResult, ...] = ()
    """Functions that are called again for what they have returned before, per batch."""
    sharded: LateSharding | None = None
    """Where each worker keeps its share of the samples after it has made those of the others too; None where none was
    seen to."""

    def share_of(self, ms: float) -> float:
        """What so much is of making a batch."""
        return min(1.0, ms / self.total_ms) if self.total_ms > 0 else 0.0

    @property
    def total_ms(self) -> float:
        return self.getitem_ms + self.collate_ms + self.gc_ms

    @property
    def getitem_blocked_ms(self) -> float:
        """Neither on a CPU nor waiting for one: storage, network, sleep. Run delay goes to it by share."""
        off_cpu = max(0.0, self.getitem_ms - self.getitem_cpu_ms)
        all_off = off_cpu + max(0.0, self.collate_ms - self.collate_cpu_ms)
        delay = min(self.run_delay_ms, all_off) * (off_cpu / all_off if all_off > 0 else 0.0)
        return off_cpu - delay


@dataclass(frozen=True, slots=True)
class WorkerThreads:
    """Threads inside the data-loader workers of one rank."""

    intra_op: int
    """torch's own (1 unless the job changed it)."""
    affinity_cpus: int
    """CPUs the worker may run on, the smallest seen."""
    distinct_affinities: int
    """1 when all workers are bound to the same CPUs."""


@dataclass(frozen=True, slots=True)
class Loader(LoaderMade):
    """One `DataLoader` and what waiting for it cost. `wait` excludes the first batch of each iterator.

    Loaders that one line has made alike, one for each epoch or fold, count as one: see `evidence.same_loaders`.
    """

    _: KW_ONLY
    batches: int
    wait_ms: float
    """Mean per batch."""
    wait_p95_ms: float
    empty_share: float | Missing
    """Share of arrivals at which no batch was ready; Missing without workers."""
    transport_ms: float
    """Unpickling in the training process, per batch."""
    transport_bytes: float
    """Bytes through the pipe per batch (tensors in shared memory not counted)."""
    iterators: int
    """Iterators started."""
    iterated_at: Site | Missing
    """The line that started the last of them."""
    iterator_start_ms: float
    """Mean of creating an iterator and waiting for its first batch."""
    batches_per_iterator: float
    fetch: Fetch | Missing
    worker_threads: WorkerThreads | Missing
    steady_batches_per_step: float = 1.0
    made: int = 1
    """How often its line has made it: more than once, where each epoch or fold makes it anew."""
    iterator_end_ms: float = 0.0
    """Mean of ending an iterator's workers; 0 without workers."""
    first_step_ms: tuple[float, float] = (0.0, 0.0)
    """By which a step that starts an iterator exceeds the steady one, where it is an irregular one: in the parts that
    only training has (waiting, backward, optimizer), and with the forward pass, which validation has too. New workers
    take CPUs from them, and after a fork every page that training writes to is copied."""
    again: SamplesAsked | Missing = NOT_ASKED
    """Whether its data set gives the same samples every time."""
    steps_ms: tuple[tuple[float, float], ...] = ()
    """The latest steady steps in order, without their wait for data: what is in `Parts.alone`, and before it the
    rest."""
    ids: tuple[int, ...] = ()
    """Of all that count as this one; `id` is the first."""
    batch_at: Site | Missing = NO_LINE
    """The line that decides how large its batches are, where the job's source says so."""
    workers_at: Site | Missing = NO_LINE
    """The same of how many workers it has."""
    persistent_at: Site | Missing = NO_LINE
    """The same of whether they outlive an epoch."""
    workers_passed_at: Site | Missing = NO_LINE
    """The line that gives it its number of workers, whatever decides that."""

    @property
    def iterator_ms(self) -> float:
        """What an iterator costs, its first batch included and the others not."""
        return self.iterator_start_ms + self.iterator_end_ms


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """What the loop does again and again between two of its steps, an epoch or so apart."""

    rows: tuple[SameResult, ...]
    """Functions that return each time what they have returned before, the dearest first; per start, and no more than
    such a step takes beyond a steady one."""
    repeated: tuple[RepeatedWork, ...]
    """What operators without a graph compute more than once in such a step; spread over all steps."""
    equivalents: tuple[Equivalent, ...]
    """Such operators for which others make the same numbers in less time; the same."""
    starts: int
    """At which functions were followed."""
    every_steps: int
    """Steps from one to the next."""
    ms: float
    """What such a step takes beyond a steady one."""
    regular: bool
    """So few steps, or so much of the time, from one to the next that the steady step holds its part of them."""
    lines: tuple[CodeLine, ...] = ()
    """Of the user's code that issue hardly any operators, in such a step; no more than it takes beyond a steady one."""
