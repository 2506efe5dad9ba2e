"""A process: where it comes from, its counters, and what happened in it now and then.

Times are nanoseconds of CLOCK_MONOTONIC, durations microseconds. What happened since the last such record has the step
at which it was written, a single event the step that it fell into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .base import NO_LINE, Missing, Site

BoundaryKind = Literal["optimizer", "batch", "forward", "backward"]
BOUNDARIES: tuple[BoundaryKind, ...] = ("optimizer", "batch", "forward", "backward")
"""What a step may end at."""


@dataclass(frozen=True, slots=True)
class ProcessHeader:
    """The first record of a file."""

    pid: int
    ppid: int
    t: int
    start: int = 0
    """When the kernel started it; 0 in a recording that does not say."""
    forked: bool = False
    python: str = ""
    executable: str = ""
    module: str = ""
    """Of `python -m`."""
    cpus: int = 0
    """That it could run on when it started."""
    host: str = ""
    """Name of the machine, or of the container."""
    boot: str = ""
    """The kernel's boot id: hosts of one name differ by it."""


@dataclass(frozen=True, slots=True)
class TorchImport:
    """Torch was imported, or could not be."""

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Boundary:
    """From this step on steps end at something else."""

    kind: BoundaryKind
    step: int


@dataclass(frozen=True, slots=True)
class Cycle:
    """The loop does the same again every so many steps, of which one is unlike the others and takes long."""

    step: int
    """When it was found."""
    length: int
    """Steps."""
    at: int
    """One of those that are unlike the others."""


@dataclass(frozen=True, slots=True)
class LongSteps:
    """Steps that take long at equal distances, without being part of a short cycle: epochs start in them, or what is
    done now and then lies before them."""

    step: int
    """When they were found."""
    at: int
    """One of them."""
    length: int
    """Steps from one to the next."""


@dataclass(frozen=True, slots=True)
class FullCollection:
    """One generation-2 collection, or any that somebody asked for."""

    step: int
    us: int
    generation: int = 2
    collected: int = 0
    site: Site | None = None
    """Who asked for it; None for Python itself."""


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections since the last such record, by generation."""

    step: int
    counts: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of a wrapped function since the last such record."""

    kind: str
    count: int
    us: int
    step: int
    site: Site | None
    bytes: int = 0
    """Written, by calls that save; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds, by types and sizes."""

    site: Site | None
    tensor_bytes: int
    optimizer_bytes: int
    """Of these, in an optimizer's `state_dict`."""
    storage_bytes: int
    """Of the storages that they are views of, which are saved whole."""
    device_bytes: int = 0
    """Of these, on a device."""
    others: tuple[str, ...] = ()
    """Classes of what is no tensor and no plain value."""
    library: str = ""
    """Module of the function that saved it: `torch.serialization`, `safetensors.torch`, ..."""
    us: int = 0
    """That saving took."""
    cpu_us: int = 0
    """That its thread was on a CPU meanwhile: not waiting for a disk, nor for a device."""
    copied_bytes: int = 0
    """Of its largest storage in the host's memory, copied to time it; 0 where there is none."""
    copied_us: int = 0
    """That the copy took, with the page faults of new memory."""
    unchanged_bytes: int = 0
    """Of the storages, those that are as they were in the checkpoint before; 0 where nothing else is otherwise."""
    unchanged: str = ""
    """The name in the checkpoint of the largest of them: `demo_features`."""
    unchanged_at: Site | Missing = NO_LINE
    """The line that registers a buffer of that name, or gives a dictionary such a key."""
    asked_at: Site | Missing = NO_LINE
    """The line of a function around the updates that leads to it."""


@dataclass(frozen=True, slots=True)
class ProfilerSwitched:
    """A profiler of the job's starts or ends in this step."""

    step: int
    on: bool
    site: Site | None = None
    """The line that started it."""
    options: tuple[str, ...] = ()
    """What it records besides operators: `record_shapes`, `profile_memory`, `with_stack`, ...; the first is `emit_nvtx`
    or `emit_itt` where it only tells another profiler of them."""
    ends: bool = False
    """It has a schedule by which it ends for good."""


@dataclass(frozen=True, slots=True)
class EvalWithGradSeen:
    """Forwards in evaluation mode whose graph nobody used, since the last such record."""

    step: int
    count: int
    us: int
    site: Site | Missing = NO_LINE


@dataclass(frozen=True, slots=True)
class HeldOutLine:
    """A line that calls a model that trains, without gradients, on a tensor that it was given in two earlier steps."""

    site: Site


@dataclass(frozen=True, slots=True)
class EvaluatedLine:
    """A line outside of modules that leads to many forward passes in evaluation mode, without a loader."""

    site: Site


@dataclass(frozen=True, slots=True)
class Started:
    """A process that this one has started, no worker of a loader."""

    pid: int
    site: Site | Missing
    """The line that starts it."""
    does: Site | Missing
    """The first loop of the function that it runs, or where that begins; none of another program, and of a
    library's."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Forward passes without gradients in one step, each on all that the one before was given and one token more."""

    step: int
    passes: int
    us: int
    site: Site | Missing = NO_LINE
    """The line that was the first to make such passes."""


@dataclass(frozen=True, slots=True)
class ForwardsSeen:
    """Root forwards of all threads since the last such record."""

    step: int
    us: int = 0
    """Since the last such record."""
    threads: int = 0
    shared: int = 0
    """Modules that several threads called."""
    calls: int = 0
    overlapped: int = 0
    others: int = 0
    """Forwards of other threads under way as one began, summed over all."""
    busy_us: int = 0
    alone: tuple[int, int, int, int] = (0, 0, 0, 0)
    together: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Measured forwards, that overlapped with none and with others: count, wall, CPU, run delay."""
    least_cpu_us: int = 0
    waiters: int = 0
    """Other threads in the function that made a measured forward, outside any of their own; over all measured."""
    backlog: float | None = None
    """Requests in the queue that the threads take them from, mean over the measured; None where no queue was seen."""
    in_training: int = 0
    """Overlapping, of modules with dropout or batch norm in training mode."""
    eval_with_grad: int = 0
    eval_with_grad_us: int = 0
    backwards: int = 0
    site: Site | Missing = NO_LINE


@dataclass(frozen=True, slots=True)
class Compiled:
    """Dynamo compiled a function, a backward pass of one, or what follows a break in one."""

    t: int
    """When it began."""
    us: int = 0
    frame: str = ""
    """Dynamo's number of the function."""
    site: Site | None = None
    """The function, by its first line; of what follows a break, the line of the break. None where it is a library's."""
    resumed: bool = False
    """Whether it is what follows a break."""
    reason: str = ""
    """Why it did not do to call what was compiled before."""
    broke: str = ""
    """What made a break in it."""
    failed: str = ""
    """Why it was given up."""


@dataclass(frozen=True, slots=True)
class CudaCounters:
    """Statistics of torch's CUDA allocator; totals since the start."""

    alloc_retries: int
    device_allocs: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    """Just then, like the one before."""


@dataclass(frozen=True, slots=True)
class SampledThread:
    """A thread of the job beside the one that trains, whose stacks were sampled."""

    id: int
    """Its number in `stacks`."""
    name: str
    """As `threading` knows it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of a process, totals since its start."""

    t: int
    step: int
    utime_us: int = 0
    stime_us: int = 0
    minflt: int = 0
    maxrss_kb: int = 0
    delay_us: int | None = None
    """The training thread was runnable and had no CPU."""
    rchar: int = 0
    """Bytes read through system calls."""
    events: int = 0
    """Of the probe's timeline."""
    own_us: int = 0
    """Of perfdoctor, at step boundaries."""
    window_us: int = 0
    """Of perfdoctor, in windows and for timings."""
    import_us: int = 0
    """The outermost imports of the process's first thread, until its first step ended."""
    cuda: CudaCounters | None = None
    throttled_us: int | None = None
    """CPU quotas stopped the control groups of a rank among others, summed over CPUs."""
    clock_mhz: float | None = None
    """Of the CPU that its training thread was on just then."""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The process left on purpose; absent after a kill."""

    tracked_objects: int
    """That Python's collector knew."""
    compiled: int | None = None
    """Functions that Dynamo has looked at; None where that is not known."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Python's exit handlers ran; absent after a kill."""

    t: int
    checkpoint_us: int = 0
    """Saving, since the last step."""
    logging_us: int = 0
    own_us: int = 0
    """Of perfdoctor, for timings after the last step."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that ended the process, or under Ray its training."""

    error: str
    """Its type and message, at most 300 characters: `ValueError: ...`."""

    @property
    def is_of_a_peer(self) -> bool:
        """Whether the rank has only lost another one."""
        return any(words in self.error for words in _OF_A_PEER)


_OF_A_PEER = ("Connection closed by peer", "Connection reset by peer", "remote process exited")


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """A hook that raised and was switched off."""

    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run of an experiment tracker that the job itself had started."""

    tracker: str
    """`mlflow` or `wandb`."""
    run: str
    """Its id."""
    at: str = ""
    """MLflow's tracking URI, or the address of W&B's server; without user, password and query."""
    path: str = ""
    """Of W&B: entity, project and id, as far as the job knew them."""
    files: str = ""
    """Of W&B: the folder of the run's files."""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A worker of Ray, or a driver whose workers are not seen."""

    run: str = ""
    """Of a worker: the name of its run of Ray Train, or of its trial of Ray Tune."""
    group: str = ""
    """Its placement group, which the ranks of one attempt share; "" without one."""
    unseen: Literal["", "client", "submitted", "uv"] = ""
    """Of a driver: what keeps the probe from its workers."""
