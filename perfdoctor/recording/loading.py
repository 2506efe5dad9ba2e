"""What the probe saw of loaders, in the training process and in workers."""

from __future__ import annotations

from dataclasses import dataclass

from .base import NO_LINE, Missing, Site


@dataclass(frozen=True, slots=True)
class LoaderMade:
    """A `DataLoader` was constructed."""

    dataset: str
    """Class of its data set."""
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    start_method: str
    """`fork`, `spawn`, `forkserver`, or "" without workers."""
    length: int | None = None
    """Samples in its data set; None where that does not say."""
    site: Site | Missing = NO_LINE
    """The line that first gave its data set to a loader."""
    collate: str = ""
    """Name of its `collate_fn`."""
    iterable: bool = False
    """Its data set gives samples in an order of its own, not by index."""
    id: int = 0
    """Its number within the process."""
    maker: Site | Missing = NO_LINE
    """Where the user's code begins that makes its batches: `collate_fn`, or else its data set's."""
    padder: Site | Missing = NO_LINE
    """The line of that code that says to what length sequences are padded, by the source."""


@dataclass(frozen=True, slots=True)
class LoaderGiven:
    """The lines of the job's that decide what a loader was given, as far as its source says so."""

    loader: int
    batch_size: Site | Missing = NO_LINE
    num_workers: Site | Missing = NO_LINE
    persistent_workers: Site | Missing = NO_LINE
    workers_passed: Site | Missing = NO_LINE
    """Where the call, or its options, say how many workers it has, whatever decides that."""


@dataclass(frozen=True, slots=True)
class IteratorMade:
    """An iterator of a loader was started."""

    loader: int
    step: int
    us: int
    site: Site | Missing = NO_LINE
    """Of `iter(loader)` or the `for` statement."""
    workers: tuple[int, ...] = ()
    """Pids of its workers: only so a process is known as one of this loader's, whatever the start method."""
    callers: tuple[Site, ...] = ()
    """The user's lines that lead to it, the innermost first; a few."""

    @property
    def stack(self) -> tuple[Site, ...]:
        """With its own."""
        return () if isinstance(self.site, Missing) else (self.site, *self.callers)


@dataclass(frozen=True, slots=True)
class IteratorEnded:
    """The workers of an iterator were ended, while the loop waited."""

    loader: int
    step: int
    us: int


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """What one of the first batches of a loader holds."""

    loader: int
    samples: int = 0
    bytes: int = 0
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    onednn: bool = False
    """Whether oneDNN was on when the batch came."""


@dataclass(frozen=True, slots=True)
class FixedPart:
    """What comes first when a sample is made, is the same each time, and is followed by what is drawn at random."""

    share: float
    """Of the time of a sample."""
    bytes: int
    """Of all that names hold then, where random numbers are first drawn."""
    at: Site | Missing = NO_LINE
    """The line in it that takes most, in the data set, or in what does both."""
    drawn_at: Site | Missing = NO_LINE
    """The line that draws."""


@dataclass(frozen=True, slots=True)
class SamplesAsked:
    """Two samples of a data set, each asked for twice after the last step of a job that perfdoctor ends."""

    loader: int
    same: bool | Missing
    """Each was the same both times, and no generator of random numbers was used for it."""
    bytes: int = 0
    """Of the larger one: arrays, tensors, texts and numbers."""
    held: str = ""
    """What both hold, as a number that equal samples share in all processes; "" where they differ from time to time, or
    the loader does not go through all of its data set, in order or at random."""
    scattered: bool = False
    """Most of one is a view of a tensor whose other numbers lie between its own."""
    kept: float = 0.0
    """Of the time that each took, the share that it did not take when it was asked for again, after another one: the
    data set keeps what it has made."""
    fixed: FixedPart | None = None
    """Of samples that differ."""
    at: Site | Missing = NO_LINE
    """Of samples that are the same each time: the line of the data set itself that takes most."""


@dataclass(frozen=True, slots=True)
class ShapesSeen:
    """Batches whose shape was looked at, and distinct shapes among them, from the start."""

    step: int
    sampled: int
    distinct: int


@dataclass(frozen=True, slots=True)
class WorkerHeader:
    """This process is a data-loader worker."""

    worker: int
    ppid: int


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """Counters of a worker, totals since its start."""

    t: int
    fetched: int
    """Batches."""
    delay_us: int | None = None
    rchar: int = 0
    intra_op: int = 0
    affinity: tuple[int, ...] = ()
