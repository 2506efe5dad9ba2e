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
from .loading import BatchSeen as BatchSeen
from .loading import IteratorEnded as IteratorEnded
from .loading import IteratorMade as IteratorMade
from .loading import LoaderMade as LoaderMade
from .loading import ShapesSeen as ShapesSeen
from .loading import WorkerHeader as WorkerHeader
from .loading import WorkerSample as WorkerSample
from .process import Call as Call
from .process import CodeSite as CodeSite
from .process import Collections as Collections
from .process import CudaCounters as CudaCounters
from .process import EvalWithGradSeen as EvalWithGradSeen
from .process import Fault as Fault
from .process import FullCollection as FullCollection
from .process import ProcessHeader as ProcessHeader
from .process import Sample as Sample
from .process import TorchImport as TorchImport
from .settings import CollectorState as CollectorState
from .settings import CudaDevice as CudaDevice
from .settings import Cudnn as Cudnn
from .settings import Libraries as Libraries
from .settings import Parameters as Parameters
from .settings import Settings as Settings
from .threads import BatchRound as BatchRound
from .threads import ForwardsSeen as ForwardsSeen
from .trials import Applied as Applied
from .trials import Block as Block
from .trials import PlannedTrial as PlannedTrial
from .trials import TrialPlan as TrialPlan
from .trials import TrialsBegan as TrialsBegan
from .windows import BatchTiming as BatchTiming
from .windows import BatchTimings as BatchTimings
from .windows import CodeRow as CodeRow
from .windows import CountersWindow as CountersWindow
from .windows import DeviceWork as DeviceWork
from .windows import IndexRow as IndexRow
from .windows import LayerRow as LayerRow
from .windows import LayersSeen as LayersSeen
from .windows import LayoutTiming as LayoutTiming
from .windows import LibraryTiming as LibraryTiming
from .windows import LineRow as LineRow
from .windows import LinesWindow as LinesWindow
from .windows import OpRow as OpRow
from .windows import OpsWindow as OpsWindow
from .windows import Replay as Replay
from .windows import SiteCall as SiteCall
from .windows import SitesWindow as SitesWindow
from .windows import Timing as Timing
from .windows import UpdateTiming as UpdateTiming

Ints = npt.NDArray[np.int64]


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
    iterators_ended: tuple[IteratorEnded, ...]
    batches_seen: tuple[BatchSeen, ...]
    shapes_seen: tuple[ShapesSeen, ...]
    collections: tuple[Collections, ...]
    full_collections: tuple[FullCollection, ...]
    calls: tuple[Call, ...]
    eval_with_grad: tuple[EvalWithGradSeen, ...]
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
    past_error: float | None = None
    """Median of how far predictions were off on this machine before; None while too few are known."""
    past_trials: int = 0


@dataclass(frozen=True, slots=True)
class CapTiming:
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
class CapTimings:
    """timings.json: what variables that cap the instruction set cost, timed after the job."""

    variables: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[CapTiming, ...] = ()
    rounds: int = 0
    threads: int = 1
    capped_capability: str = ""
    free_capability: str = ""
    missing: str = ""
    """Why there are no timings."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run directory, but for the monitor's files."""

    facts: RunFacts
    processes: tuple[ProcessRecording, ...]
    problems: tuple[str, ...] = ()
    cap_timings: CapTimings | None = None
    """None when no variable caps the instruction set."""
    trials: TrialPlan | None = None
    """None when no remedy was to be tried, and in recordings older than that."""
