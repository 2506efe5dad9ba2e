"""All that is known about one rank, and about a run."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing
from ...recording.layers import LayerProfile
from ...recording.libraries import LibraryUse
from ...recording.lines import CallSite, CodeLine, IndexUse, Line, SameResult
from ...recording.locks import LockWaits
from ...recording.machine import Machine
from ...recording.operators import NO_COUNTERS, Counters, OpProfile
from ...recording.process import ProbeFault
from ...recording.repeats import (
    AsideWork,
    DiscardedGradients,
    Equivalent,
    GrowingWork,
    PassAgain,
    RepeatedWork,
    SampleWork,
    SingleDerivatives,
    SubnormalNumbers,
    WeightedWork,
)
from ...recording.settings import PLAIN_ALLOCATOR, AllocatorTiming, Backend, Cudnn, Precision, Threads
from ...recording.spark import NO_SPARK, SparkResources
from ...recording.timings import CALLS_NOT_TRACED, NOT_TRACED, TracingTiming
from .activity import Activity
from .anatomy import Decoding, Evaluations, JobAnatomy, LoggingLine, UnloadedPasses
from .checkpoints import Checkpoints
from .communication import Communication
from .compilation import Compilation
from .concurrency import Concurrency
from .deterministic import Deterministic
from .device import DeviceTimeline
from .growth import StepGrowth
from .host import Host
from .job import DebuggingAid, Job
from .loading import EpochStarts, Loader
from .memory import CudaMemory, HostMemory
from .modes import Modes
from .profiled import Profiled
from .step import GarbageCollection, Step

NOT_RECORDED = Missing("it was not recorded")
NO_TRACE = Missing(
    "host and device are seen side by side in a trace only", "record one with torch.profiler: perfdoctor report TRACE"
)


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What perfdoctor itself cost in this run."""

    hooks_us_per_step: float
    """Measured unit cost of our hooks times how often they ran."""
    start_ms: float | Missing
    """Added to the process start, by the probe's own clock."""
    window_ms: float
    """Beyond ordinary steps, in all windows together."""
    window_share: float
    """`window_ms` over the observed time."""
    monitor_cpus: float | Missing
    """CPU cores that perfdoctor itself used outside the job."""
    bytes_per_step: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about one rank. Checks get this and nothing else."""

    rank: int
    machine: Machine
    job: Job
    step: Step | Missing = NOT_RECORDED
    loaders: tuple[Loader, ...] | Missing = NOT_RECORDED
    gc: GarbageCollection | Missing = NOT_RECORDED
    memory: HostMemory | Missing = NOT_RECORDED
    cuda_memory: CudaMemory | Missing = NOT_RECORDED
    ops: OpProfile | Missing = NOT_RECORDED
    call_sites: tuple[CallSite, ...] | Missing = NOT_RECORDED
    precision: Precision | Missing = NOT_RECORDED
    threads: Threads | Missing = NOT_RECORDED
    host: Host | Missing = NOT_RECORDED
    own_cost: OwnCost | Missing = NOT_RECORDED
    probe_faults: tuple[ProbeFault, ...] = ()
    backend: Backend | Missing = NOT_RECORDED
    layers: LayerProfile | Missing = NOT_RECORDED
    hot_lines: tuple[Line, ...] | Missing = NOT_RECORDED
    """The most expensive first."""
    concurrency: Concurrency | Missing = NOT_RECORDED
    library_use: LibraryUse | Missing = NOT_RECORDED
    cudnn: Cudnn | Missing = NOT_RECORDED
    device: DeviceTimeline | Missing = NOT_RECORDED
    counters: Counters | Missing = NO_COUNTERS
    index_use: tuple[IndexUse, ...] | Missing = NOT_RECORDED
    debugging: tuple[DebuggingAid, ...] | Missing = NOT_RECORDED
    tracing: TracingTiming | Missing = NOT_TRACED
    traced_calls: TracingTiming | Missing = CALLS_NOT_TRACED
    allocator: AllocatorTiming | Missing = PLAIN_ALLOCATOR
    compilation: Compilation | Missing = NOT_RECORDED
    profiled: Profiled | Missing = NOT_RECORDED
    modes: Modes | Missing = NOT_RECORDED
    deterministic: Deterministic | Missing = NOT_RECORDED
    schedules: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines that step a learning-rate schedule, the dearest first."""
    statistics_updates: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines in the loop that pass the data through an averaged model for its batch norms, the dearest first."""
    processes: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines in the loop that start processes of this one's code, or end their pool; a loader's workers apart."""
    programs: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines in the loop that run other programs, with what those take."""
    messages: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines in the loop that send messages to processes of the job's own, or wait for theirs, with what that takes."""
    searched_modules: tuple[CallSite, ...] | Missing = NOT_RECORDED
    """Lines below which transformers searches tensors for infinity and NaN, once for each call of a module."""
    code_lines: tuple[CodeLine, ...] | Missing = NOT_RECORDED
    """The most expensive first."""
    communication: Communication | Missing = NOT_RECORDED
    """The same for all ranks."""
    growth: StepGrowth | Missing = NOT_RECORDED
    checkpoints: Checkpoints | Missing = NOT_RECORDED
    anatomy: JobAnatomy | Missing = NOT_RECORDED
    evaluations: Evaluations | Missing = NOT_RECORDED
    decoding: Decoding | Missing | None = NOT_RECORDED
    """None where no sequence is written without a cache."""
    unloaded_passes: UnloadedPasses | Missing | None = NOT_RECORDED
    """None where no evaluation makes many passes without a loader."""
    logging: tuple[LoggingLine, ...] | Missing = NOT_RECORDED
    """The dearest line first."""
    activity: Activity | Missing = NO_TRACE
    discarded_gradients: tuple[DiscardedGradients, ...] | Missing = NOT_RECORDED
    """The dearest first; empty where every gradient is read."""
    repeated_work: tuple[RepeatedWork, ...] | Missing = NOT_RECORDED
    """The dearest first; empty where nothing is computed twice."""
    metrics: tuple[AsideWork, ...] | Missing = NOT_RECORDED
    """What steps compute for numbers that training does not need, the dearest line first."""
    unused_work: tuple[AsideWork, ...] | Missing = NOT_RECORDED
    """What they compute that nobody reads; the same."""
    weighted: tuple[WeightedWork, ...] | Missing = NOT_RECORDED
    """What they compute to multiply it by 0; the same."""
    growing_work: tuple[GrowingWork, ...] | Missing = NOT_RECORDED
    """In the mean of the steps seen; the dearest first."""
    of_samples: SampleWork | Missing | None = NOT_RECORDED
    """None where nothing, or little, comes again in each epoch."""
    equivalents: tuple[Equivalent, ...] | Missing = NOT_RECORDED
    """Operators for which others make the same numbers in less time, the largest saving first."""
    derivatives: tuple[SingleDerivatives, ...] | Missing = NOT_RECORDED
    """Asked for one after the other where one pass computes them together, the dearest first."""
    passes_again: tuple[PassAgain, ...] | Missing = NOT_RECORDED
    """Backward passes through a graph that one before them has gone through, the dearest first."""
    subnormals: SubnormalNumbers | Missing | None = NOT_RECORDED
    """None where the operators that were watched met hardly any."""
    same_results: tuple[SameResult, ...] | Missing = NOT_RECORDED
    """Functions that are called again for what they have returned before, the dearest first; empty where none is."""
    epoch_starts: EpochStarts | Missing | None = NOT_RECORDED
    """None where no steps that take long are known to come again."""
    lock_waits: LockWaits | Missing = NOT_RECORDED
    spark: SparkResources | Missing = NO_SPARK
    """The same for all ranks."""

    @property
    def on_cuda(self) -> bool:
        """Whether this rank's parameters live on a CUDA device."""
        return not isinstance(self.precision, Missing) and any(
            device.startswith("cuda") for device in self.precision.parameter_devices
        )

    def felt_ms(self, waited_ms: float) -> float:
        """Of what the host waits per step, the most that can lengthen it, milliseconds.

        Where a CUDA device computes, a wait costs nothing while the device has work: at most as long as it can have
        been without any, by the device's timeline and by the kernels in the operator window.
        """
        bounds = [waited_ms]
        if not isinstance(self.device, Missing):
            bounds.append(self.device.idle_most_ms)
        kernels = None if isinstance(self.ops, Missing) else self.ops.device_busy_ms
        if self.on_cuda and kernels is not None and not isinstance(self.step, Missing):
            bounds.append(self.step.step_ms - kernels)
        return max(0.0, min(bounds))


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """All ranks of one run."""

    ranks: tuple[Evidence, ...]
    """By rank; at least one, with `Missing` parts when no rank was seen."""
    notes: tuple[str, ...] = ()
    """What the reader had to skip: cut lines, unknown records."""

    @property
    def slowest(self) -> Evidence:
        """The rank that the others wait for: they have steps as long as its own, because they end together.

        Where ranks do not wait for each other, or were not seen to, it is the one with the longest steady step; the
        first when none has one.
        """
        together = self.ranks[0].communication
        late = None if isinstance(together, Missing) else together.late
        return max(
            self.ranks,
            key=lambda e: (e.rank == late, -1.0 if isinstance(e.step, Missing) else e.step.step_ms),
        )
