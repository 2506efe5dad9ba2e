"""What the probe saw of loaders, in the training process and in workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoaderMade:
    """A DataLoader was constructed."""

    id: int
    site: int = -1
    dataset: str = ""
    length: int | None = None
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    start_method: str = ""
    collate: str = ""
    getitems: bool = False
    iterable: bool = False
    """The data set gives samples in its own order, not by index. False in an older recording."""


@dataclass(frozen=True, slots=True)
class IteratorMade:
    """An iterator of a loader was started."""

    loader: int
    step: int
    us: int
    t: int = 0
    site: int = -1
    """Of `iter(loader)` or the `for` statement; -1 in a recording older than this."""


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
    onednn: bool | None = None
    """Whether oneDNN was on when the batch came; None in older recordings."""


@dataclass(frozen=True, slots=True)
class ShapesSeen:
    """Batches whose shape was looked at, and distinct shapes among them, from the start."""

    step: int
    sampled: int = 0
    distinct: int = 0


@dataclass(frozen=True, slots=True)
class WorkerHeader:
    """This process is a data-loader worker."""

    worker: int
    workers: int = 0
    ppid: int = 0


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """Counters of a worker, totals since its start."""

    t: int
    fetched: int = 0
    delay_us: int | None = None
    rchar: int = 0
    read_bytes: int = 0
    os_threads: int = 0
    intra_op: int = 0
    affinity: tuple[int, ...] = ()
