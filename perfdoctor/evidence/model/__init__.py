"""What a check may ask: one frozen, typed object per rank, in which a quantity is a value or `Missing`.

Conventions: names carry units; "per step" means per steady step; a share is a fraction of 1. Nothing here
touches an operating system, a clock or torch, so evidence can be built by hand in a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.host import GpuProcess
from ...recording.machine import Cpu, Gpu, Machine, PciGpu
from .backend import Backend, CapTiming, CapTimings, LibraryTiming
from .base import Missing, Site
from .causes import MAKING, WITHOUT_CPU, Cause, Compute, InputWait, Lack, Share
from .concurrency import NOT_COUNTED, Concurrency, RequestTiming
from .counters import NOT_COUNTED as NO_COUNTERS
from .counters import Counters
from .device import Bound, DeviceParts, DeviceTimeline
from .host import Host, Neighbour
from .indices import IndexUse
from .job import DebuggingAid, Job, JobEnd, Precision, Threads
from .layers import CodeLine, Layer, LayerProfile, Line
from .libraries import Attention, AttentionTiming, Convolution, Cudnn, LayoutTiming, LibraryUse, Recurrent, ShapeVariety
from .loading import Fetch, Loader, WorkerThreads
from .memory import CudaMemory, EvalWithGrad, HostMemory
from .operators import (
    BatchTiming,
    BatchTimings,
    CallSite,
    DeviceWork,
    DtypeTiming,
    Op,
    OpProfile,
    ThreadTiming,
    UpdateTiming,
)
from .step import BoundaryKind, CollectSite, GarbageCollection, Parts, Step

__all__ = [
    "MAKING",
    "WITHOUT_CPU",
    "Attention",
    "AttentionTiming",
    "Backend",
    "BatchTiming",
    "BatchTimings",
    "Bound",
    "BoundaryKind",
    "CallSite",
    "CapTiming",
    "CapTimings",
    "Cause",
    "CodeLine",
    "CollectSite",
    "Compute",
    "Concurrency",
    "Convolution",
    "Counters",
    "Cpu",
    "CudaMemory",
    "Cudnn",
    "DebuggingAid",
    "DeviceParts",
    "DeviceTimeline",
    "DeviceWork",
    "DtypeTiming",
    "EvalWithGrad",
    "Evidence",
    "Fetch",
    "GarbageCollection",
    "Gpu",
    "GpuProcess",
    "Host",
    "HostMemory",
    "IndexUse",
    "InputWait",
    "Job",
    "JobEnd",
    "Lack",
    "Layer",
    "LayerProfile",
    "LayoutTiming",
    "LibraryTiming",
    "LibraryUse",
    "Line",
    "Loader",
    "Machine",
    "Missing",
    "Neighbour",
    "Op",
    "OpProfile",
    "OwnCost",
    "Parts",
    "PciGpu",
    "Precision",
    "ProbeFault",
    "Recurrent",
    "RequestTiming",
    "RunEvidence",
    "ShapeVariety",
    "Share",
    "Site",
    "Step",
    "ThreadTiming",
    "Threads",
    "UpdateTiming",
    "WorkerThreads",
]


NO_BACKEND = Missing("this recording does not say what torch computed with", "record the job again")
NOT_RECORDED = Missing("it was not recorded")


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
class ProbeFault:
    """A hook that raised and was switched off."""

    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about one rank. Checks get this and nothing else."""

    rank: int
    machine: Machine
    job: Job
    step: Step | Missing
    loaders: tuple[Loader, ...] | Missing
    gc: GarbageCollection | Missing
    memory: HostMemory | Missing
    cuda_memory: CudaMemory | Missing
    ops: OpProfile | Missing
    call_sites: tuple[CallSite, ...] | Missing
    precision: Precision | Missing
    threads: Threads | Missing
    host: Host | Missing
    own_cost: OwnCost | Missing
    probe_faults: tuple[ProbeFault, ...] = ()
    backend: Backend | Missing = NO_BACKEND
    layers: LayerProfile | Missing = NOT_RECORDED
    hot_lines: tuple[Line, ...] | Missing = NOT_RECORDED
    """The most expensive first."""
    concurrency: Concurrency | Missing = NOT_COUNTED
    library_use: LibraryUse | Missing = NOT_RECORDED
    cudnn: Cudnn | Missing = NOT_RECORDED
    device: DeviceTimeline | Missing = NOT_RECORDED
    counters: Counters | Missing = NO_COUNTERS
    index_use: tuple[IndexUse, ...] | Missing = NOT_RECORDED
    debugging: tuple[DebuggingAid, ...] | Missing = NOT_RECORDED
    code_lines: tuple[CodeLine, ...] | Missing = NOT_RECORDED
    """The most expensive first."""

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
        """The rank with the longest steady step; the first when none has one."""
        return max(
            self.ranks,
            key=lambda e: -1.0 if isinstance(e.step, Missing) else e.step.step_ms,
        )
