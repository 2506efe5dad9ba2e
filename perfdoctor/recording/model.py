"""A recording in memory: the records of each process, and its columns as arrays. Nothing is interpreted here.

What a record holds is declared in the modules beside this one, which checks may load: they do without numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..injected._perfdoctor_probe import records
from . import ray
from .base import Missing, Site
from .growth import Afterwards, Growth, Planned
from .lines import EpochStartsWindow, LateShardingSeen, LinesWindow, SameResultsWindow, SitesWindow
from .loading import (
    BatchSeen,
    IteratorEnded,
    IteratorMade,
    LoaderGiven,
    LoaderMade,
    SamplesAsked,
    ShapesSeen,
    WorkerHeader,
    WorkerSample,
)
from .locks import LockWaits
from .memory import MemoryWindow, ObjectsWindow
from .modes import ModesSeen, ModesWindow
from .operators import Counters, OpsWindow
from .parallel import Division
from .phases import Phase
from .process import (
    BOUNDARIES,
    Call,
    Collections,
    Compiled,
    Cycle,
    Decoded,
    EvaluatedLine,
    EvalWithGradSeen,
    Failure,
    ForwardsSeen,
    FullCollection,
    HeldOutLine,
    LongSteps,
    ProbeFault,
    ProcessEnd,
    ProcessExit,
    ProcessHeader,
    ProfilerSwitched,
    RayProcess,
    Sample,
    SampledThread,
    Saved,
    Started,
    TorchImport,
    TrackedRun,
)
from .repeats import BetweenWindow, GradientReads, RepeatsWindow, SampleWork, SubnormalNumbers
from .settings import PLAIN_ALLOCATOR, AllocatorTiming, ReducedModel, Settings
from .spark import SparkResources
from .timings import FinalTimings, ProfilerTiming, RequestTiming, ThreadRound, TracingTiming, VectorExtensionTimings
from .trials import Applied, Block, TrialPlan, TrialsBegan

Ints = npt.NDArray[np.int64]

MANY = 64
"""Ranks of a job: of more, all are compared with one another by digests, and only a few are judged by everything that
was recorded of them. To judge one takes a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one kind; every array has the same length."""

    arrays: Mapping[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        return self.arrays[name]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()), ()))

    def where(self, rows: npt.NDArray[np.bool_] | slice) -> Columns:
        """Some of the rows."""
        return Columns(_Chosen(self.arrays, rows))


class _Chosen(Mapping[str, Ints]):
    """Some rows of columns, taken when they are asked for: of thousands of ranks only a few columns are."""

    def __init__(self, arrays: Mapping[str, Ints], rows: npt.NDArray[np.bool_] | slice) -> None:
        self._arrays = arrays
        self._rows = rows

    def __getitem__(self, name: str) -> Ints:
        return self._arrays[name][self._rows]

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


@dataclass(frozen=True, slots=True)
class ProcessRecording:
    """One file: one process. A field that is a tuple has all records of a kind, the others the last one."""

    header: ProcessHeader
    steps: Columns
    """`records.STEP_COLUMNS`, and `step`, `boundary` (index into `BOUNDARIES`), `marked` (in or just after a window),
    `end_ns` (when the step ended)."""
    size_bytes: int
    device_left_out: Mapping[str, int]
    """Steps marked on the device's timeline that came to nothing, by reason."""
    torch: TorchImport | None
    worker: WorkerHeader | None
    settings: Settings | None
    batches: Columns
    """`records.BATCH_COLUMNS`."""
    fetches: Columns
    """`records.FETCH_COLUMNS`."""
    device: Columns
    """`records.DEVICE_COLUMNS`."""
    evaluations: Columns
    """`records.EVALUATION_COLUMNS`."""
    held_out: tuple[HeldOutLine, ...]
    evaluated: tuple[EvaluatedLine, ...]
    started: tuple[Started, ...]
    decoded: tuple[Decoded, ...]
    """Of each step that held any, a record or more."""
    nodes: Columns
    """`records.NODE_COLUMNS`; a node's number is its row."""
    stacks: Columns
    """`records.STACK_COLUMNS`."""
    stack_sites: Mapping[int, Site]
    """What the `site` of a node is."""
    stack_threads: tuple[SampledThread, ...]
    samples: tuple[Sample, ...]
    worker_samples: tuple[WorkerSample, ...]
    loaders: tuple[LoaderMade, ...]
    given: tuple[LoaderGiven, ...]
    iterators: tuple[IteratorMade, ...]
    iterators_ended: tuple[IteratorEnded, ...]
    batches_seen: tuple[BatchSeen, ...]
    samples_asked: tuple[SamplesAsked, ...]
    """Empty of a job that ended by itself."""
    shapes_seen: tuple[ShapesSeen, ...]
    collections: tuple[Collections, ...]
    full_collections: tuple[FullCollection, ...]
    calls: tuple[Call, ...]
    saved: tuple[Saved, ...]
    compiled: tuple[Compiled, ...]
    profiler: tuple[ProfilerSwitched, ...]
    profiler_timing: ProfilerTiming | None
    eval_with_grad: tuple[EvalWithGradSeen, ...]
    reduced_model: ReducedModel | None
    """None without DistributedDataParallel."""
    division: Division | None
    """None where the ranks divide nothing that torch knows of."""
    forwards_seen: tuple[ForwardsSeen, ...]
    request_rounds: tuple[RequestTiming, ...]
    thread_rounds: tuple[ThreadRound, ...]
    ops: OpsWindow | Missing | None
    call_sites: SitesWindow | Missing | None
    code_lines: LinesWindow | Missing | None
    later_lines: LinesWindow | Missing | None
    """The line window once more, where something grew."""
    evaluation_lines: LinesWindow | Missing | None
    """One batch of an evaluation line by line; None where none with as many was seen."""
    gradient_reads: GradientReads | Missing | None
    """None where every gradient has an optimizer, and one pass is made for each update."""
    repeats: RepeatsWindow | Missing | None
    of_samples: SampleWork | None
    """None where there is none, or what it was made of has changed since."""
    subnormals: SubnormalNumbers | Missing | None
    lock_waits: LockWaits | Missing | None
    same_results: SameResultsWindow | Missing | None
    epoch_starts: EpochStartsWindow | Missing | None
    """None where no start of an epoch was awaited, or none came."""
    between: BetweenWindow | Missing | None
    """The same."""
    tracing: TracingTiming | Missing | None
    """None where nobody traced Python's allocations."""
    traced_calls: TracingTiming | Missing | None
    """None where nobody traced Python's calls."""
    modes: ModesWindow | Missing | None
    """None where no mode of the job's was on often enough to be timed."""
    modes_seen: tuple[ModesSeen, ...]
    """Empty where none was ever on."""
    long_steps: LongSteps | None
    """None where none are known to come again."""
    cycle: Cycle | None
    """None where every steady step is like the others."""
    growth: Growth | None
    """None where nothing grew."""
    planned: Planned | None
    phases: tuple[Phase, ...]
    """Empty where the job was over before a first one was known."""
    afterwards: Afterwards | None
    """None where nothing was seen to train after the loop, and of a job that was not ended."""
    counters: Counters | Missing | None
    memory: MemoryWindow | Missing | None
    """None where it was not asked for."""
    objects: ObjectsWindow | Missing | None
    """The same."""
    making: LinesWindow | None
    """Of a worker: one batch, line by line."""
    later_making: LinesWindow | None
    """Of a worker whose batches take longer and longer: a later one."""
    same_making: SameResultsWindow | None
    """Of a worker: functions that make batches."""
    late_sharding: LateShardingSeen | None
    """Of a worker whose data set gives samples in an order of its own."""
    timings: FinalTimings | None
    end: ProcessEnd | None
    exit: ProcessExit | None
    failure: Failure | None
    """None where it ended otherwise."""
    faults: tuple[ProbeFault, ...]
    tracked: tuple[TrackedRun, ...]
    trials: TrialsBegan | None
    """None where no remedy was tried."""
    blocks: tuple[Block, ...]
    applied: tuple[Applied, ...]
    spark: SparkResources | None
    """Of a driver of Spark's."""
    ray: RayProcess | None
    """None outside of Ray."""
    problems: tuple[str, ...]
    """What could not be read: a cut last line, records of another shape than their type's."""
    whole: Callable[[], tuple[ProcessRecording, ...]] | None = None
    """Reads it wholly, with its workers, where it is one of so many ranks that only what they are compared by was read;
    else None."""

    @property
    def sampled(self) -> int:
        """Moments at which the stack of the thread that trains, or makes batches, was sampled."""
        return int(self.stacks["weight"][self.stacks["thread"] == 0].sum())

    @property
    def role(self) -> Literal["rank", "worker", "helper"]:
        """A rank has taken steps; a worker said so; anything else helps."""
        if self.worker is not None:
            return "worker"
        return "rank" if len(self.steps) else "helper"

    @property
    def trains(self) -> bool:
        """Whether a step of its ended at an update of parameters."""
        return bool(np.isin(self.steps["boundary"], _UPDATES).any())

    @property
    def rank(self) -> int:
        """In torch's process group; without one from the environment, and 0 where that says nothing."""
        if self.settings is not None and self.settings.rank is not None:
            return self.settings.rank
        return _number(self.environment.get("RANK"), 0)

    @property
    def world_size(self) -> int:
        if self.settings is not None and self.settings.world_size is not None:
            return self.settings.world_size
        return _number(self.environment.get("WORLD_SIZE"), 1)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of `records.ENVIRONMENT` that were set, as late as they were read."""
        if self.settings is not None:
            return self.settings.environment
        return self.torch.environment if self.torch is not None else {}


_UPDATES = (BOUNDARIES.index("optimizer"), BOUNDARIES.index("backward"))

KINDS: Mapping[str, str] = {
    "torch": "torch",
    "worker": "worker",
    "settings": "settings",
    "sample": "samples",
    "worker_sample": "worker_samples",
    "loader": "loaders",
    "given": "given",
    "iter": "iterators",
    "iterend": "iterators_ended",
    "batch": "batches_seen",
    "samples": "samples_asked",
    "of_samples": "of_samples",
    "shapes": "shapes_seen",
    "gc": "collections",
    "full_gc": "full_collections",
    "call": "calls",
    "saved": "saved",
    "compiled": "compiled",
    "profiler": "profiler",
    "profiler_timing": "profiler_timing",
    "held_out": "held_out",
    "evaluated": "evaluated",
    "started": "started",
    "decoded": "decoded",
    "eval_with_grad": "eval_with_grad",
    "ddp": "reduced_model",
    "division": "division",
    "concurrency": "forwards_seen",
    "batching": "request_rounds",
    "threads": "thread_rounds",
    "window ops": "ops",
    "window sites": "call_sites",
    "window lines": "code_lines",
    "window later": "later_lines",
    "window evaluation": "evaluation_lines",
    "window gradients": "gradient_reads",
    "window tracing": "tracing",
    "window traced_calls": "traced_calls",
    "window modes": "modes",
    "modes": "modes_seen",
    "window repeats": "repeats",
    "window subnormals": "subnormals",
    "window locks": "lock_waits",
    "window same": "same_results",
    "window epochs": "epoch_starts",
    "window between": "between",
    "long_steps": "long_steps",
    "cycle": "cycle",
    "growth": "growth",
    "planned": "planned",
    "phase": "phases",
    "afterwards": "afterwards",
    "window counters": "counters",
    "window memory": "memory",
    "window objects": "objects",
    "making": "making",
    "later_making": "later_making",
    "same_making": "same_making",
    "late_sharding": "late_sharding",
    "timings": "timings",
    "end": "end",
    "exit": "exit",
    "failure": "failure",
    "fault": "faults",
    "tracked": "tracked",
    "trials": "trials",
    "block": "blocks",
    "applied": "applied",
    "thread": "stack_threads",
    "spark": "spark",
    "ray": "ray",
}
"""Kinds of records, see `records`, and the field of `ProcessRecording` that says what they are decoded into."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "steps": records.STEP_COLUMNS,
    "batches": records.BATCH_COLUMNS,
    "fetches": records.FETCH_COLUMNS,
    "device": records.DEVICE_COLUMNS,
    "evaluations": records.EVALUATION_COLUMNS,
    "nodes": records.NODE_COLUMNS,
    "stacks": records.STACK_COLUMNS,
}
"""Those of columns, under the name of their field."""
ABSENT: Mapping[str, int] = {"loader": -1}
"""What the entries of a column are that an older recording lacks, where that is not 0."""


def _number(text: str | None, otherwise: int) -> int:
    """RANK and WORLD_SIZE are anybody's to set; only a launcher's numbers count."""
    return int(text) if text is not None and text.isdecimal() else otherwise


def _last_started(stepped: Sequence[ProcessRecording], launched: Collection[int]) -> Sequence[ProcessRecording]:
    """Without those that torchrun has started anew: of the processes that its agent, which is none of the `launched`
    ones, has started as one local rank the last."""
    kept: dict[object, ProcessRecording] = {}
    for process in sorted(stepped, key=lambda one: one.header.t):
        parent, environment = process.header.ppid, process.environment
        by_agent = "TORCHELASTIC_RUN_ID" in environment and parent not in launched
        kept[(parent, environment.get("LOCAL_RANK")) if by_agent else process.header] = process
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class RunFacts:
    """run.json: what was started and how it ended, by the launcher."""

    command: tuple[str, ...] = ()
    """Secrets masked."""
    cwd: str = ""
    started: str = ""
    """ISO 8601, UTC."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Allow-listed variables as the launcher found them."""
    host: str = ""
    """Name of the launcher's machine, or of its container; "" in a recording that does not say."""
    boot: str = ""
    """The boot id of its kernel."""
    elapsed_s: float = 0.0
    """From its start to its end, with trials; 0 before it has ended."""
    end: str = "unknown"
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    ended_ns: int = 0
    """When the job was gone; 0 where nobody saw it."""
    problems: tuple[str, ...] = ()
    """What the launcher knows to be missing from the recording."""
    past_error: float | None = None
    """Median of how far predictions were off on this machine before; None while too few are known."""
    past_trials: int = 0


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run directory, but for the monitor's files."""

    facts: RunFacts
    processes: tuple[ProcessRecording, ...]
    problems: tuple[str, ...] = ()
    vector_extension_timings: VectorExtensionTimings | Missing | None = None
    """None when no variable limits vector extensions."""
    trials: TrialPlan | None = None
    """None when no remedy was to be tried."""
    allocator_timing: AllocatorTiming | Missing = PLAIN_ALLOCATOR
    unread_workers: int = 0
    """Data-loader workers that are not in `processes`: those of ranks that were not read wholly."""

    def in_full(self, ranks: Sequence[ProcessRecording]) -> Recording:
        """With these ranks read wholly, and their workers."""
        read = {id(rank): rank.whole() for rank in ranks if rank.whole is not None}
        if not read:
            return self
        processes = tuple(one for process in self.processes for one in read.get(id(process), (process,)))
        workers = sum(one.role == "worker" for family in read.values() for one in family)
        return replace(self, processes=processes, unread_workers=self.unread_workers - workers)

    def read_wholly(self) -> Recording:
        """Without the ranks of which only what they are compared by was read."""
        return replace(self, processes=tuple(process for process in self.processes if process.whole is None))

    @property
    def ranks(self) -> Sequence[ProcessRecording]:
        """The processes whose steps the run is about, in their order. One that a launcher did not count, and that only
        evaluates while others train (the parent of hogwild workers, an actor beside a learner), is none."""
        launched = {process.header.pid for process in self.processes if "LOCAL_RANK" in process.environment}
        stepped = ray.of_one_attempt([process for process in self.processes if process.role == "rank"])
        stepped = sorted(_last_started(stepped, launched), key=lambda process: (process.rank, process.header.t))
        training = [process for process in stepped if process.trains or process.world_size > 1]
        return training if any(process.trains for process in training) else stepped
