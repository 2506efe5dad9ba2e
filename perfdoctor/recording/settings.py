"""Torch's settings and libraries at the second step: by then the job has made up its mind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .base import NO_LINE, Missing, Site
from .libraries import LibraryTiming
from .timings import NO_LIMIT, VectorExtensionTimings

UNKNOWN_TO_TORCH = Missing("this build of torch does not say")
NO_CUDA = Missing("the job does not use CUDA")
FEW_SHAPES = Missing("too few batches were looked at", "let the job run for 200 steps or more")


@dataclass(frozen=True, slots=True)
class Precision:
    """Types in use and what the hardware does with them."""

    default_dtype: str
    parameter_dtypes: tuple[tuple[str, int], ...]
    """Type and number of elements, of the parameters that the optimizers hold; most first."""
    parameter_devices: tuple[str, ...]
    autocast_dtype: str
    """`bfloat16`, `float16`, or "" when autocast was off in the forward pass."""
    grad_scaler: bool
    bf16_native: bool | Missing = UNKNOWN_TO_TORCH
    """The CPU multiplies bf16 in hardware, as oneDNN sees it."""
    fp16_native: bool | Missing = UNKNOWN_TO_TORCH
    compute_capability: tuple[int, int] | None = None
    """Of the CUDA device in use; None on the CPU."""
    tf32_matmul: bool | None = None
    grad_scaler_site: Site | None = None
    batch_dtypes: tuple[str, ...] = ()
    """Types of the tensors that the loaders deliver, from `BatchSeen`."""
    double_site: Site | None = None
    """The line that first made torch's default type or a module float64; None where none did, or nobody noted it."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of one rank and the knobs that set them."""

    intra_op: int
    inter_op: int
    openmp_runtimes: tuple[str, ...] = ()
    """Distinct OpenMP and BLAS pools loaded: `libgomp`, `libiomp5`, `openblas`, ..."""
    set_at: Site | None = None
    """The line that set the number of intra-op threads; None where none did, or nobody noted it."""
    launch_affinity_cpus: int = 0
    """CPUs the process could run on when it started, from `ProcessHeader`."""
    affinity_cpus: int = 0
    """CPUs that the training thread may run on in its steps; 0 where nobody asked."""
    pinned_at: Site | None = None
    """The line that chose them; None where none did, or nobody noted it."""
    variables: tuple[tuple[str, str], ...] = ()
    """OMP_*, KMP_*, GOMP_*, MKL_* that were set, from `Settings.environment`."""
    torchrun_default: bool = False
    """torchrun set OMP_NUM_THREADS=1 because nobody else had: by comparison with the launcher's environment."""

    def variable(self, name: str) -> str | None:
        return dict(self.variables).get(name)


@dataclass(frozen=True, slots=True)
class Backend:
    """Libraries and devices of one rank."""

    cuda: str
    """Version of CUDA that torch was built for; "" in a build without."""
    hip: str
    arch_list: tuple[str, ...]
    """CUDA architectures the build has code for: `sm_80`, and `compute_90` for later ones."""
    blas: str
    """`mkl`, `open`, `nvpl`, `accelerate`, ...; "generic" is the reference BLAS, "" unknown."""
    onednn_built: bool
    onednn_enabled: bool
    """As seen at the end of a forward, because `torch.backends.mkldnn.flags()` switches it off just there."""
    acl: bool
    """oneDNN has Arm's Compute Library."""
    capability: str
    """Instruction set of torch's own kernels: `DEFAULT`, `AVX2`, `AVX512`, `SVE256`, ..."""
    xpu_built: bool
    mps_available: bool
    data_parallel: bool
    """A root module was an `nn.DataParallel`."""
    parameters_by_device: tuple[tuple[str, int], ...]
    """Elements that the optimizers hold, by device, most first; empty without an optimizer."""
    batch_devices: tuple[str, ...] = ()
    """Devices of the tensors that the loaders deliver, from `BatchSeen`."""
    variables: tuple[tuple[str, str], ...] = ()
    """Allow-listed variables as the job had them; those read when torch is imported, as they were then."""
    onednn_timings: tuple[LibraryTiming, ...] = ()
    """From `FinalTimings`; empty where oneDNN was on."""
    vector_extension_timings: VectorExtensionTimings | Missing = NO_LIMIT
    """From timings.json."""
    onednn_between_steps: bool = True
    """False: it is off in the whole process, not only inside some `with`."""
    onednn_off_at: Site | None = None
    """The line that switched it off, and not by `flags()`; None where none did, or nobody noted it."""
    mkl_branch: int = 0
    """What MKL has made of MKL_CBWR, as it numbers its branches; 0 where that is not set, or nobody knows."""

    def variable(self, name: str) -> str | None:
        return dict(self.variables).get(name)

    @property
    def devices(self) -> tuple[str, ...]:
        """Of the parameters."""
        return tuple(device for device, _ in self.parameters_by_device)


@dataclass(frozen=True, slots=True)
class ShapeVariety:
    """Shapes of batches, one in eight of which was looked at."""

    sampled: int
    distinct: int
    late: int
    """Of the distinct ones, those first seen in the second half."""


@dataclass(frozen=True, slots=True)
class Cudnn:
    """cuDNN's settings, of a job that uses CUDA."""

    available: bool
    enabled: bool
    """Between the steps."""
    benchmark: bool
    deterministic: bool
    version: int | None = None
    error: str = ""
    """What cuDNN said when it was loaded: a version that does not match, a GPU that it does not know."""
    enabled_in_forward: bool | None = None
    """At the end of a forward, where `torch.backends.cudnn.flags()` may have switched it off; None: not seen."""
    enabled_at: Site | None = None
    """The line that set `torch.backends.cudnn.enabled` last; None where none did."""
    benchmark_at: Site | None = None
    deterministic_at: Site | None = None
    shapes: ShapeVariety | Missing = FEW_SHAPES
    """From `ShapesSeen`."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """The CUDA device in use."""

    total_bytes: int
    allocator: str
    """torch's: `native`, `cudaMallocAsync`."""


@dataclass(frozen=True, slots=True)
class ReducedModel:
    """How DistributedDataParallel reduces the gradients of a model over ranks, by its own log."""

    bucket_bytes: tuple[int, ...] = ()
    """Of gradients that are reduced together."""
    find_unused_parameters: int = 0
    broadcast_buffers: int = 0
    gradient_as_bucket_view: int = 0
    static_graph: int = 0
    num_parameter_tensors: int = 0
    total_parameter_size_bytes: int = 0
    bucket_cap_bytes: int = 0
    made_at: Site | Missing = NO_LINE


@dataclass(frozen=True, slots=True)
class AllocatorTiming:
    """python.json: how many times as long plain Python takes with the job's debugging allocator as without."""

    allocating: float
    """A loop that makes small objects."""
    calling: float
    """One that calls functions and makes few."""


PLAIN_ALLOCATOR = Missing("Python's allocator is not a debugging one, or what that costs was not timed")
"""In the place of an `AllocatorTiming`."""


@dataclass(frozen=True, slots=True)
class TrainerOption:
    """A keyword that the job's script gives a trainer; or what its files decide for other libraries and for ranks."""

    name: str
    """`eval_steps`, `pad_to_multiple_of`, `malloc_trim`; `shard`: data that is cut into a part for each rank."""
    site: Site


@dataclass(frozen=True, slots=True)
class Settings:
    """All that is read once."""

    precision: Precision
    threads: Threads
    backend: Backend
    environment: Mapping[str, str]
    """The variables of `records.ENVIRONMENT` that were set."""
    allocator: str
    """Of C: `glibc`, `jemalloc`, `tcmalloc`, `mimalloc`."""
    gc_enabled: bool
    """Python's collector."""
    frameworks: tuple[str, ...] = ()
    trainer: str = ""
    """Whose training loop it is: `lightning`, `transformers`, `accelerate`, or "" for the job's own."""
    options: tuple[TrainerOption, ...] = ()
    """What the job's files decide."""
    tracer: str = ""
    """The package whose trace or profile function the training thread runs under: `coverage`, `bdb`; a function of the
    job's own by its name; "" for none."""
    traced_frames: int = 0
    """Frames that `tracemalloc` keeps of every allocation; 0 where it does not trace."""
    traced_at: Site | None = None
    """The line that last called `tracemalloc.start`; None where none did, or nobody noted it."""
    python_options: tuple[str, ...] = ()
    """Of `python -X`, by name: `dev`, `importtime`."""
    cpus: tuple[int, ...] = ()
    """Numbers of those that it may run on while it trains; () in a recording that does not say."""
    deterministic: bool = False
    """torch may use deterministic algorithms only."""
    deterministic_at: Site | None = None
    """The line that last said whether; None where none did, or nobody noted it."""
    compiled: bool = False
    """torch.compile was used."""
    compile_lacks: str | None = None
    """What torch.compile would need here and the machine lacks, "" where it has all; None where nobody looked."""
    compiled_at: Site | None = None
    """The line that first called torch.compile; None where none did, or nobody noted it."""
    eager_elements: int = 0
    """Of the largest tensor that a model returned when it was first called, before any torch.compile; 0 where that is
    not known."""
    compiled_elements: int = 0
    """The same after it."""
    hook_ns: float = 0.0
    """One enter-and-leave of the probe's timeline."""
    start_ms: float = 0.0
    """What the probe added to the start of the process."""
    cuda: CudaDevice | None = None
    """None in a process that does not use CUDA."""
    cudnn: Cudnn | Missing = NO_CUDA
    rank: int | None = None
    """In torch's process group; None without one."""
    world_size: int | None = None
    device_clock: str | None = None
    """Why no step is marked on the device's timeline, "" where steps are; None without CUDA, and where it failed."""
