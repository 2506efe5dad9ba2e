"""Torch's settings and libraries, as the process found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    threads_site: int = -2
    """The last call of `torch.set_num_threads`, as above."""
    onednn_site: int = -2
    """The last line that switched oneDNN off, and not by `flags()`, as above."""
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
