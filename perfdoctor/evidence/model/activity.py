"""What host and device did side by side, as a profiler's trace shows it. All times are milliseconds per step, unless a
field says otherwise; a trace without marked steps is one step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...recording.base import Missing, Site


class Idle(str, Enum):
    """What the host did while the device had nothing to do; of several at once, the first of this order."""

    INPUT = "waiting for data"
    ALLOCATOR = "device memory allocation"
    COPIES = "making copies ready"
    QUEUED = "between kernels that were queued in time"
    SYNC = "waiting for the device, and catching up afterwards"
    OPTIMIZER = "the optimizer's launches"
    LAUNCHING = "launching work"
    OTHER = "other code"


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Time in which no kernel, copy or set ran."""

    cause: Idle
    ms: float
    at: Site | Missing
    """The line of the user's code during most of it."""


@dataclass(frozen=True, slots=True)
class Called:
    """Calls of the runtime or the driver of one kind."""

    name: str
    """The one that took longest: `hipFree`."""
    per_step: float
    ms: float


@dataclass(frozen=True, slots=True)
class CopyUse:
    """Copies from host to device."""

    ms: float
    exposed_ms: float
    """While nothing else ran on the device."""
    pageable_ms: float
    pageable_exposed_ms: float
    """Of those from pageable memory, with the time that the host took to make them ready while the device was idle."""
    bytes: float
    """Per step."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that comes last to the collectives, in nearly all steps."""

    rank: int
    ms: float
    """By which it comes later than the next, per step: all others wait so long for it."""
    share: float
    """Of the steps, in which it is the last."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """Communication kernels."""

    per_step: float
    ms: float
    """With one on, each moment counted once."""
    exposed_ms: float
    """While no other kernel ran."""
    transport_ms: float | Missing
    """By the rank that waited least in each: what sending takes. The rest is waiting for other ranks."""
    waiting_ms: float | Missing
    late: LateRank | Missing
    """Missing where no rank is always the last, or where that cannot be told."""
    names: tuple[str, ...]
    """Of the collectives, the longest first."""


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Kernels of one name."""

    name: str
    """Shortened to what a person reads."""
    ms: float
    per_step: float
    operator: str
    """That launched most of it: `aten::mm`; "" where the trace does not say."""
    layer: str
    """The module in which most of it was launched: `Linear_3`; "" where the trace has no Python stacks."""
    dtype: str
    """Of a product's arithmetic; "" for other kernels."""
    flops: float
    """Per step, from the operators' shapes; 0 where they are not known."""


@dataclass(frozen=True, slots=True)
class OptimizerUse:
    """The optimizer's part of a step."""

    kernels: float
    """Per step."""
    listed: float
    """Of them, those that update many tensors at once."""
    host_ms: float
    idle_ms: float
    """Of that, with the device idle."""


@dataclass(frozen=True, slots=True)
class Products:
    """Kernels of matrix products and convolutions in one type."""

    dtype: str
    """`float32`, `tf32`, `bfloat16`, ...: that of the arithmetic, not of the tensors."""
    ms: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a device does at most, without sparsity, by its data sheet."""

    float32: float
    """10^12 operations per second, outside tensor cores."""
    tf32: float
    """0 where the device has none."""
    half: float
    """float16 and bfloat16 on tensor cores."""
    bandwidth: float
    """10^9 bytes per second."""
    source: str

    def of(self, dtype: str) -> float:
        """10^12 operations per second in a type; 0 where it is not known."""
        by_type = {"float32": self.float32, "tf32": self.tf32, "bfloat16": self.half, "float16": self.half}
        return by_type.get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class Activity:
    """One device and its host over the window of a trace."""

    device: str
    """`NVIDIA A100-SXM4-40GB`; "" where the trace does not say."""
    devices: int
    """That the process used; the busiest one is told of."""
    steps: int
    window_ms: float
    """All of it: first step's start to the later of the last step's end and the device's last work."""
    step_ms: float
    busy_ms: float
    computing_ms: float
    """With a kernel on that computes."""
    copying_ms: float
    """With a copy on."""
    idle: tuple[IdleTime, ...]
    """By cause, the largest first."""
    input_ms: float
    """The host's wait for data, also while the device worked."""
    workers: bool | Missing
    """The loader that was waited for has worker processes."""
    copies: CopyUse
    collectives: Collectives | None
    """None where there are none."""
    allocator: Called | None
    syncs: Called | None
    launches: float
    """Kernels per step."""
    late_share: float
    """Of kernels: the host asked for them when the stream had nothing left to do."""
    layouts_ms: float
    """With a kernel on that does nothing but change the memory layout, and no communication."""
    products: tuple[Products, ...]
    optimizer: OptimizerUse | None
    products_ms: float
    """With a kernel on that multiplies matrices or convolves, and no communication."""
    elementwise_ms: float
    """The same for element-wise kernels, reductions, norms and copies between them: what a compiler can fuse."""
    kernels: tuple[KernelUse, ...]
    """The longest first."""
    peaks: Peaks | Missing
    inflation_ms: float
    """Of the host's time, what recording it took, by the number of events: an estimate."""
    unlaunched: int
    """Events of the device whose launch is not in the trace, in all: they belong to the step before."""

    @property
    def idle_ms(self) -> float:
        """Without any work."""
        return self.step_ms - self.busy_ms

    @property
    def idle_share(self) -> float:
        return self.idle_ms / self.step_ms if self.step_ms > 0 else 0.0

    def idle_by(self, cause: Idle) -> IdleTime | None:
        """What one cause left the device without work."""
        return next((one for one in self.idle if one.cause is cause), None)
