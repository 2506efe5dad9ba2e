"""What a check may ask: one frozen, typed object per rank, in which a quantity is a value or `Missing`.

Conventions: names carry units; "per step" means per steady step; a share is a fraction of 1. Nothing here
touches an operating system, a clock or torch, so evidence can be built by hand in a test.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

BoundaryKind = Literal["optimizer", "batch", "forward"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A quantity this run did not see."""

    reason: str
    """Why, as a clause: "the job ended before the operator window"."""
    remedy: str = ""
    """How to get it, as an imperative: "run with --steps 50 or more"."""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's code, as the job's stack showed it."""

    file: str
    """Relative to the job's working directory where it lies below it."""
    line: int
    function: str
    via: str = ""
    """The framework function between the user's line and the event (`lightning/.../fit_loop.py:advance`)."""


# ---------------------------------------------------------------------------------------------------------
# The machine and the job


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML sees it."""

    index: int
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What the job could use. `usable_cpus` is what it may use at once: affinity capped by the cgroup quota."""

    cpu_model: str
    logical_cpus: int
    physical_cores: int | None
    affinity_cpus: int
    quota_cpus: float | None
    """CPU time per wall time that the cgroup allows; None without a quota."""
    memory_bytes: int
    kernel: str
    page_fault_ns: float | None
    """Measured cost of one first touch of a 4 KiB page on this machine."""
    gpus: tuple[Gpu, ...] = ()

    @property
    def usable_cpus(self) -> float:
        return self.affinity_cpus if self.quota_cpus is None else min(self.affinity_cpus, self.quota_cpus)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the job ended."""

    kind: Literal["finished", "stopped", "crashed", "killed", "interrupted", "timeout", "unknown"]
    """`stopped`: by perfdoctor, with enough evidence. `crashed`: exit code other than 0. `killed`: by a signal
    that perfdoctor did not send. `timeout`: no step, or no progress, for `--patience` seconds."""
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    """More about it, such as the kernel's out-of-memory count."""


@dataclass(frozen=True, slots=True)
class Job:
    """The program that was observed."""

    command: tuple[str, ...]
    """Secrets masked."""
    cwd: str
    python_version: str
    torch_version: str
    torch_build: str
    """`cpu`, `cu126`, ..."""
    started: str
    """ISO 8601, UTC."""
    end: JobEnd
    world_size: int
    local_ranks: int
    """Ranks seen on this machine."""
    workers: int
    """Data-loader worker processes seen."""
    helpers: int
    """Python processes that were neither rank nor worker."""
    frameworks: tuple[str, ...]
    """`lightning`, `transformers`, `accelerate`, ... as far as imported."""
    environment: tuple[tuple[str, str], ...]
    """The variables of the allow-list that were set."""
    compiled: bool = False
    """torch.compile was used."""


# ---------------------------------------------------------------------------------------------------------
# The step


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the steady step goes on the host clock, milliseconds; the sum is `Step.step_ms`."""

    input_wait: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    checkpoint: float = 0.0
    gc: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.as_dict().values())

    @property
    def compute(self) -> float:
        """Forward, backward and optimizer."""
        return self.forward + self.backward + self.optimizer

    def as_dict(self) -> dict[str, float]:
        """Part name -> milliseconds, in the order of the anatomy bar."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Step:
    """The steady step of one rank.

    `step_ms` is the sum of `parts`. Bursty parts (`input_wait`, `gc`, `checkpoint`) are means, because a cost
    that comes every 50th step is a cost; the others are 5 % trimmed means, so that one hiccup is not.
    """

    boundary: BoundaryKind
    count: int
    """Steady steps behind the numbers."""
    seconds: float
    """Their summed wall time."""
    warmup: int
    windowed: int
    """Steps left out because a window (profiler, call sites) was open or just closed."""
    irregular: int
    """Steps left out because they held something else: an epoch's start, a validation run."""
    irregular_ms: float
    """Time in irregular steps beyond a steady step each, divided by all steps after the warm-up."""
    step_ms: float
    parts: Parts
    median_ms: float
    mad_ms: float
    low_ms: float
    high_ms: float
    """95 % bootstrap interval of `step_ms`."""
    cpu_ms: float
    """CPU time of the training thread per step."""
    process_cpu_ms: float | Missing
    """User and system CPU time of the whole process per step."""
    run_delay_ms: float | Missing
    """Time per step that the training thread was runnable but had no CPU."""
    micro_batches: float
    """Root forwards or batches per step."""
    samples: float | Missing
    """Samples per step."""
    first_step_s: float | Missing
    """From the start of the process to the end of its first step."""
    slope: float = 0.0
    """Relative growth of the step over the steady span: 0.1 means 10 % slower at its end."""

    @property
    def blocked_ms(self) -> float | Missing:
        """Wall minus CPU minus run delay of the training thread: waiting for storage, sleep, locks, other threads."""
        if isinstance(self.run_delay_ms, Missing):
            return self.run_delay_ms
        return max(0.0, self.step_ms - self.cpu_ms - self.run_delay_ms)


# ---------------------------------------------------------------------------------------------------------
# Loading


@dataclass(frozen=True, slots=True)
class Fetch:
    """Making one batch, wherever that happens (a worker, or the training process with `num_workers=0`).

    Milliseconds per batch. `getitem` is everything before `collate_fn`.
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
    disk_bytes: float
    """Of those, from storage."""
    batch_bytes: float | Missing
    """Tensor bytes of one batch."""

    @property
    def total_ms(self) -> float:
        return self.getitem_ms + self.collate_ms

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
    os_threads: int
    """All threads of the worker process, the largest seen."""
    affinity_cpus: int
    """CPUs the worker may run on, the smallest seen."""
    distinct_affinities: int
    """1 when all workers are bound to the same CPUs."""


@dataclass(frozen=True, slots=True)
class Loader:
    """One `DataLoader` and what waiting for it cost. `wait` excludes the first batch of each iterator."""

    site: Site | Missing
    dataset: str
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    start_method: str
    """`fork`, `spawn`, `forkserver`, or "" without workers."""
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
    iterator_start_ms: float
    """Mean of creating an iterator and waiting for its first batch."""
    batches_per_iterator: float
    fetch: Fetch | Missing
    worker_threads: WorkerThreads | Missing
    steady_batches_per_step: float = 1.0


# ---------------------------------------------------------------------------------------------------------
# Garbage collection, memory, operators, threads


@dataclass(frozen=True, slots=True)
class CollectSite:
    """A line that calls `gc.collect`."""

    site: Site
    calls_per_step: float
    ms_per_step: float
    pause_ms: float


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """Python's cyclic garbage collector in the training process, over the steady steps."""

    ms_per_step: float
    automatic_ms_per_step: float
    per_step: tuple[float, float, float]
    """Collections of generation 0, 1 and 2 per step, automatic and explicit."""
    full_pause_ms: float
    """Median pause of a generation-2 collection; 0 when there was none."""
    longest_pause_ms: float
    full_collected: float
    """Objects freed per generation-2 collection, mean."""
    explicit: tuple[CollectSite, ...]
    tracked_objects: int | Missing
    frozen_objects: int
    enabled: bool


@dataclass(frozen=True, slots=True)
class EvalWithGrad:
    """Forwards in evaluation mode that recorded a graph nobody used."""

    site: Site | Missing
    forwards: int
    forward_ms: float
    """Time in those forwards per step of training, or per forward in an inference loop."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line in the job's loop that calls something worth knowing, from the call-site window or a wrapper."""

    kind: str
    """`empty_cache`, `item`, `to_float64`, ..."""
    site: Site
    calls_per_step: float
    ms_per_step: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The training process and the C allocator, per steady step."""

    minor_faults: float
    system_cpu_ms: float
    user_cpu_ms: float
    peak_rss_bytes: int | Missing
    allocator: str
    """`glibc`, `jemalloc`, `tcmalloc`, `mimalloc`."""
    malloc_settings: tuple[tuple[str, str], ...]
    """Allocator variables that are set."""
    eval_with_grad: EvalWithGrad | None
    empty_cache: tuple[CallSite, ...]

    @property
    def system_share(self) -> float:
        total = self.system_cpu_ms + self.user_cpu_ms
        return self.system_cpu_ms / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """The CUDA caching allocator over the steady steps."""

    backend: str
    caching: bool
    alloc_retries_per_step: float
    device_allocs_per_step: float
    device_frees_per_step: float
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    total_bytes: int
    inactive_split_bytes: int
    ooms: int

    @property
    def fragmentation(self) -> float:
        return 1 - self.peak_allocated_bytes / self.peak_reserved_bytes if self.peak_reserved_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Op:
    """One kind of operator in the profiled steps, summed."""

    name: str
    dtype: str
    """Of its first floating-point input: `float32`, `float64`, ...; "" when unknown."""
    shapes: str
    """Input shapes, sizes as they are."""
    device: str
    calls_per_step: float
    self_ms_per_step: float
    total_ms_per_step: float
    flops_per_step: float


@dataclass(frozen=True, slots=True)
class DtypePrice:
    """One of the job's own operators, timed in this process on zeros of its shapes in two types."""

    name: str
    shapes: str
    dtype: str
    """What the job uses."""
    milliseconds: float
    """One call in `dtype`."""
    float32_milliseconds: float
    """One call in float32."""


@dataclass(frozen=True, slots=True)
class ThreadPrice:
    """The job's own largest operators, timed in this process with a number of intra-op threads."""

    threads: int
    milliseconds: float
    """One round of them all, mean; comparable between the entries of one run only."""
    rounds: int = 1
    """Rounds, half a second or more apart."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """The operator window: `steps` steps under torch.profiler, summarised."""

    steps: int
    ops: tuple[Op, ...]
    """The largest by self time."""
    ops_per_step: float
    self_ms_per_step: float
    """Of all operators, also those not listed."""
    self_ms_by_dtype: tuple[tuple[str, float], ...] = ()
    """The same by the type of the operators' first floating-point input."""
    prices: tuple[DtypePrice, ...] = ()
    thread_prices: tuple[ThreadPrice, ...] = ()
    """By number of threads; empty when nothing could be replayed."""
    device_copies_ms: float = 0.0
    """Host-to-device copies on the device timeline, per step."""
    pageable_copies_ms: float = 0.0
    """Those of them from pageable memory."""
    device_busy_ms: float | None = None
    """Kernel time per step on the device; None on the CPU."""
    tensor_core_ms: float | None = None

    def flops(self, dtype: str | None = None) -> float:
        """FLOPs per step, of one type or of all."""
        return sum(op.flops_per_step for op in self.ops if dtype is None or op.dtype == dtype)

    def self_ms(self, dtype: str) -> float:
        """Self time per step of the operators of one type, listed or not."""
        return dict(self.self_ms_by_dtype).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class Precision:
    """Types in use and what the hardware does with them."""

    default_dtype: str
    parameter_dtypes: tuple[tuple[str, int], ...]
    """Type and number of elements, of the parameters that the optimizers hold."""
    parameter_devices: tuple[str, ...]
    autocast_dtype: str
    """`bfloat16`, `float16`, or "" when autocast was off in the forward pass."""
    grad_scaler: bool
    bf16_native: bool | Missing
    """The CPU multiplies bf16 in hardware, as oneDNN sees it."""
    fp16_native: bool | Missing
    compute_capability: tuple[int, int] | None
    """Of the CUDA device in use; None on the CPU."""
    tf32_matmul: bool | None
    grad_scaler_site: Site | None = None
    batch_dtypes: tuple[str, ...] = ()
    """Types of the tensors that the loaders deliver."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of one rank and the knobs that set them."""

    intra_op: int
    inter_op: int
    os_threads: int
    job_affinity_cpus: int
    """CPUs the training thread may run on, after torch was imported."""
    launch_affinity_cpus: int
    """CPUs the process could run on when it started."""
    openmp_runtimes: tuple[str, ...]
    """Distinct OpenMP and BLAS pools loaded: `libgomp`, `libiomp5`, `openblas`, ..."""
    variables: tuple[tuple[str, str], ...]
    """OMP_*, KMP_*, GOMP_*, MKL_* that were set."""
    torchrun_default: bool
    """torchrun set OMP_NUM_THREADS=1 because nobody else had."""
    switches_per_step: float
    """Involuntary context switches per step."""

    def variable(self, name: str) -> str | None:
        return dict(self.variables).get(name)


# ---------------------------------------------------------------------------------------------------------
# From outside


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process that is not ours and used CPU while the job ran."""

    pid: int
    command: str
    user: str
    cpus: float


@dataclass(frozen=True, slots=True)
class Host:
    """The machine over the steady span, sampled from outside. CPU in cores: 1.0 is one core kept busy."""

    samples: int
    job_cpus: float
    others_cpus: float
    idle_cpus: float
    steal_share: float
    job_run_delay_share: float | Missing
    """Of all threads of the job: time runnable without a CPU over that plus time on one."""
    throttled_share: float | Missing
    """Share of cgroup periods in which the job was throttled."""
    pressure_share: float | Missing
    """PSI cpu `some`, avg10, mean."""
    memory_available_bytes: int
    swap_in_bytes: float
    peak_job_bytes: int
    neighbours: tuple[Neighbour, ...]
    """The largest first."""
    gpu_utilisation: float | Missing = Missing("no GPU")
    """Mean, fraction of 1."""


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

    @property
    def on_cuda(self) -> bool:
        """Whether this rank's parameters live on a CUDA device."""
        return not isinstance(self.precision, Missing) and any(
            device.startswith("cuda") for device in self.precision.parameter_devices
        )


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
