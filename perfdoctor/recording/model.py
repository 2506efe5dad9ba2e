"""A recording in memory: what one process wrote, typed, with its columns as arrays.

Nothing is interpreted here. Times are nanoseconds of CLOCK_MONOTONIC, durations microseconds, as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .library import AttentionRow as AttentionRow
from .library import ConvolutionRow as ConvolutionRow
from .library import LibraryUse as LibraryUse
from .library import RecurrentRow as RecurrentRow
from .threads import BatchRound as BatchRound
from .threads import ForwardsSeen as ForwardsSeen
from .trials import Applied as Applied
from .trials import Block as Block
from .trials import PlannedTrial as PlannedTrial
from .trials import TrialPlan as TrialPlan
from .trials import TrialsBegan as TrialsBegan
from .windows import BatchPrice as BatchPrice
from .windows import BatchPrices as BatchPrices
from .windows import CodeRow as CodeRow
from .windows import CountersWindow as CountersWindow
from .windows import DeviceWork as DeviceWork
from .windows import IndexRow as IndexRow
from .windows import LayerRow as LayerRow
from .windows import LayersSeen as LayersSeen
from .windows import LibraryPrice as LibraryPrice
from .windows import LineRow as LineRow
from .windows import LinesWindow as LinesWindow
from .windows import OpRow as OpRow
from .windows import OpsWindow as OpsWindow
from .windows import Price as Price
from .windows import Replay as Replay
from .windows import SiteCall as SiteCall
from .windows import SitesWindow as SitesWindow

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProcessHeader:
    """The first record of a file."""

    pid: int
    ppid: int
    t: int
    forked: bool = False
    spawned: bool = False
    python: str = ""
    executable: str = ""
    module: str = ""
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class TorchImport:
    """Torch was imported, or could not be."""

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cpus: int = 0
    script: str = ""
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the first optimizer updates."""

    optimizer: str = ""
    foreach: bool | None = None
    fused: bool | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    device_elements: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectorState:
    """Python's collector at the second step."""

    enabled: bool = True
    thresholds: tuple[int, ...] = ()
    frozen: int = 0
    full_before: int = 0


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """The CUDA device in use."""

    name: str = ""
    capability: tuple[int, int] = (0, 0)
    total_bytes: int = 0
    tf32_matmul: bool = False
    allocator: str = ""


@dataclass(frozen=True, slots=True)
class Cudnn:
    """cuDNN, of a job that has initialised CUDA."""

    available: bool = False
    version: int | None = None
    error: str = ""
    enabled: bool = True
    benchmark: bool = False
    benchmark_limit: int = 0
    deterministic: bool = False
    flash_attention: bool = True


@dataclass(frozen=True, slots=True)
class Libraries:
    """What this build of torch computes with."""

    arch_list: tuple[str, ...] = ()
    """CUDA architectures that the build has code for: `sm_80`, `compute_90`."""
    blas: str = ""
    mkl: bool | None = None
    onednn: bool | None = None
    acl: bool | None = None
    xpu: bool = False
    mps: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Torch's settings at the second step boundary."""

    intra_op: int = 0
    inter_op: int = 0
    os_threads: int = 0
    cpus: int = 0
    default_dtype: str = "float32"
    capability: str = ""
    mkldnn: bool = True
    bf16_native: bool | None = None
    fp16_native: bool | None = None
    anomaly: bool = False
    double_site: int = -2
    """The first call of `torch.set_default_dtype(torch.float64)` or of a module's `double()`; -2 where there was none,
    or in an older recording."""
    deterministic: bool = False
    frameworks: tuple[str, ...] = ()
    trainer: str = ""
    pools: tuple[str, ...] = ()
    allocator: str = "glibc"
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Parameters | None = None
    autocast: str = ""
    scaler_site: int = -2
    gc: CollectorState = field(default_factory=CollectorState)
    unit_ns: float = 0.0
    start_us: int = 0
    compiled: bool = False
    cuda: CudaDevice | None = None
    onednn_in_forward: bool | None = None
    """Whether oneDNN was on when a root module's forward ended; None when none was seen by then."""
    cudnn_in_forward: bool | None = None
    """The same of cuDNN."""
    cudnn: Cudnn | None = None
    data_parallel: bool = False
    libraries: Libraries | None = None
    concurrency: bool = False
    """Forwards of several threads are counted; False in a recording older than that."""
    device_clock: str | None = None
    """Why no step is marked on the CUDA device's timeline, "" where steps are; None without CUDA, in a recording older
    than that, and where it failed."""


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
class FullCollection:
    """One generation-2 collection, or any that somebody asked for (`site` >= 0)."""

    step: int
    us: int
    generation: int = 2
    collected: int = 0
    site: int = -1


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections since the last such record, by generation."""

    step: int
    counts: tuple[int, ...]
    us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of a wrapped function since the last such record."""

    kind: str
    site: int
    count: int
    us: int
    step: int


@dataclass(frozen=True, slots=True)
class Ungraded:
    """Forwards in evaluation mode whose graph nobody used."""

    step: int
    site: int
    count: int
    us: int


@dataclass(frozen=True, slots=True)
class CudaCounters:
    """Statistics of torch's CUDA allocator; totals since the start."""

    num_alloc_retries: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0
    num_ooms: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    inactive_split: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of a process, totals since its start."""

    t: int
    step: int
    utime_us: int = 0
    stime_us: int = 0
    minflt: int = 0
    majflt: int = 0
    nvcsw: int = 0
    nivcsw: int = 0
    maxrss_kb: int = 0
    thread_us: int = 0
    delay_us: int | None = None
    rchar: int = 0
    read_bytes: int = 0
    events: int = 0
    own_us: int = 0
    window_us: int = 0
    cuda: CudaCounters | None = None


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


@dataclass(frozen=True, slots=True)
class CodeSite:
    """A place in the user's code."""

    id: int
    file: str
    line: int
    function: str = ""
    via: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A hook that raised."""

    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one kind; every array has the same length."""

    arrays: Mapping[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        return self.arrays[name]

    def __len__(self) -> int:
        return min((len(column) for column in self.arrays.values()), default=0)


BoundaryKind = Literal["optimizer", "batch", "forward"]


@dataclass(frozen=True, slots=True)
class ProcessRecording:
    """One file: one process."""

    header: ProcessHeader
    torch: TorchImport | None
    worker: WorkerHeader | None
    settings: Settings | None
    steps: Columns
    """The probe's step columns, and `step`, `boundary` (index into `BOUNDARIES`), `marked` (in or just after a
    window), `end_ns` (when the step ended)."""
    batches: Columns
    fetches: Columns
    samples: tuple[Sample, ...]
    worker_samples: tuple[WorkerSample, ...]
    loaders: tuple[LoaderMade, ...]
    iterators: tuple[IteratorMade, ...]
    batches_seen: tuple[BatchSeen, ...]
    shapes_seen: tuple[ShapesSeen, ...]
    collections: tuple[Collections, ...]
    full_collections: tuple[FullCollection, ...]
    calls: tuple[Call, ...]
    ungraded: tuple[Ungraded, ...]
    sites: Mapping[int, CodeSite]
    ops: OpsWindow | None
    call_sites: SitesWindow | None
    thread_rounds: tuple[Mapping[int, float], ...]
    """Rounds of the largest operators: intra-op threads -> microseconds."""
    tracked_objects: int | None
    faults: tuple[Fault, ...]
    ended: bool
    size_bytes: int
    forwards_seen: tuple[ForwardsSeen, ...] = ()
    batch_rounds: tuple[BatchRound, ...] = ()
    device: Columns = field(default_factory=lambda: Columns({}))
    """`records.DEVICE_COLUMNS` of the steps marked on the device's timeline."""
    device_left_out: Mapping[str, int] = field(default_factory=dict)
    """Marked steps that came to nothing, by reason."""
    counters: CountersWindow | None = None
    code_lines: LinesWindow | None = None
    making: LinesWindow | None = None
    """Of a worker: one batch, line by line."""
    trials: TrialsBegan | None = None
    """None where no remedy was tried."""
    blocks: tuple[Block, ...] = ()
    applied: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read: a cut last line, an unknown kind."""

    @property
    def role(self) -> Literal["rank", "worker", "helper"]:
        """A rank has taken steps; a worker said so; anything else helps."""
        if self.worker is not None:
            return "worker"
        return "rank" if len(self.steps) else "helper"

    @property
    def rank(self) -> int:
        """From the environment that every launcher sets; 0 without one."""
        return _number(self._environment.get("RANK"), 0)

    @property
    def world_size(self) -> int:
        return _number(self._environment.get("WORLD_SIZE"), 1)

    @property
    def _environment(self) -> Mapping[str, str]:
        if self.settings is not None:
            return self.settings.environment
        return self.torch.environment if self.torch is not None else {}


def _number(text: str | None, otherwise: int) -> int:
    """RANK and WORLD_SIZE are anybody's to set; only a launcher's numbers count."""
    return int(text) if text is not None and text.isdecimal() else otherwise


BOUNDARIES: tuple[BoundaryKind, ...] = ("optimizer", "batch", "forward")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """run.json: what was started and how it ended."""

    command: tuple[str, ...] = ()
    cwd: str = ""
    started: str = ""
    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Allow-listed variables as the launcher found them."""
    end: str = "unknown"
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    elapsed_s: float = 0.0
    problems: tuple[str, ...] = ()
    """What the launcher knows to be missing from the recording."""


@dataclass(frozen=True, slots=True)
class CapPrice:
    """One operator with a cap on the instruction set, and without."""

    name: str
    dtype: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 0
    """In the operator window."""
    total_us: int = 0
    """Of those calls, as profiled."""
    capped_us: float = 0.0
    free_us: float = 0.0
    """One call, in an interpreter of its own."""


@dataclass(frozen=True, slots=True)
class CapPrices:
    """prices.json: what variables that cap the instruction set cost, timed after the job."""

    variables: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[CapPrice, ...] = ()
    rounds: int = 0
    threads: int = 1
    capped_capability: str = ""
    free_capability: str = ""
    missing: str = ""
    """Why there are no prices."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run directory, but for the monitor's files."""

    facts: RunFacts
    processes: tuple[ProcessRecording, ...]
    problems: tuple[str, ...] = ()
    cap_prices: CapPrices | None = None
    """None when no variable caps the instruction set."""
    trials: TrialPlan | None = None
    """None when no remedy was to be tried, and in recordings older than that."""
