"""The program that was observed, its types and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base import Missing, Site


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
    trainer: str = ""
    """Whose training loop it is: `lightning`, `transformers`, `accelerate`, or "" for the job's own."""


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
    double_site: Site | None = None
    """The line that first made torch's default type or a module float64; None where none did, or nobody noted it."""


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
    set_at: Site | None = None
    """The line that set the number of intra-op threads; None where none did, or nobody noted it."""

    def variable(self, name: str) -> str | None:
        return dict(self.variables).get(name)


@dataclass(frozen=True, slots=True)
class DebuggingAid:
    """Something that helps to find errors and costs time in every step."""

    name: str
    """As a noun: "Python's development mode"."""
    off: str
    """A shell line that switches it off."""
