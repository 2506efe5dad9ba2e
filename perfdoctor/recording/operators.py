"""The operator window: operators by type and shape; and the counters window, what a few steps do, counted. Per step,
milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import NOT_TIMED, Missing, Site
from .kept_trace import NOT_KEPT, KeptTrace
from .layers import LayerProfile
from .libraries import LibraryUse
from .modules_again import Experts, InParts, InTurn, RepeatedRows, Siblings
from .timings import (
    BatchReplay,
    BatchTimings,
    BlasPool,
    ConvolutionTiming,
    DtypeTiming,
    FrozenTiming,
    GroupsTiming,
    ParameterTiming,
    PassWays,
    ThreadTiming,
    UpdateTiming,
)

_PAIRS = {"complex64": "float32", "complex128": "float64"}
NO_COUNTERS = Missing(
    "this run was not asked to count", "record it with `perfdoctor gate` or `perfdoctor baseline write`"
)


def _is_of(name: str, dtype: str) -> bool:
    return dtype in (name, _PAIRS.get(name))


@dataclass(frozen=True, slots=True)
class Op:
    """One kind of operator in the profiled steps, summed."""

    name: str
    dtype: str
    """That it computes in: `float32`, `float64`, ...; "" when unknown. Of several the one that the others are converted
    to."""
    shapes: str
    """Input shapes, sizes as they are: `[64, 256] [256, 512]`, without scalars and absent arguments."""
    calls_per_step: float
    self_ms_per_step: float
    total_ms_per_step: float
    flops_per_step: float

    def computes_in(self, dtype: str) -> bool:
        """Whether its numbers, or the pairs that complex ones are, are of the type."""
        return _is_of(self.dtype, dtype)


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """One CUDA device in the operator window."""

    index: int
    busy_ms: float
    """With a kernel on, each moment counted once."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """The operators of `steps` steps under torch.profiler, summarised."""

    steps: int
    ops: tuple[Op, ...]
    """The largest by self time."""
    ops_per_step: float
    self_ms_per_step: float
    """Of all operators, also those not listed."""
    self_ms_by_dtype: tuple[tuple[str, float], ...] = ()
    """The same by the type that the operators compute in."""
    timings: tuple[DtypeTiming, ...] = ()
    thread_timings: tuple[ThreadTiming, ...] = ()
    """By number of threads; empty when nothing could be replayed."""
    device_copies_ms: float = 0.0
    """Host-to-device copies on the device timeline."""
    pageable_copies_ms: float = 0.0
    """Those of them from pageable memory."""
    device_busy_ms: float | None = None
    """With a kernel on some device, each moment counted once; None on the CPU."""
    pauses_ms: float = 0.0
    """Between operators, in pauses of 0.2 ms and more: the job's own code, a wait. In all parts of the step, also
    beside forward and backward."""
    devices: tuple[DeviceWork, ...] = ()
    """By index; empty on the CPU."""
    batch_timings: BatchTimings | Missing = NOT_TIMED
    batch_replay: BatchReplay | Missing = NOT_TIMED
    update: UpdateTiming | Missing = NOT_TIMED
    parameters: ParameterTiming | Missing = NOT_TIMED
    frozen: FrozenTiming | Missing = NOT_TIMED
    ways: PassWays | Missing = NOT_TIMED
    in_parts: tuple[InParts, ...] = ()
    """The dearest first."""
    in_turn: tuple[InTurn, ...] = ()
    """Likewise."""
    repeated_rows: tuple[RepeatedRows, ...] = ()
    """Likewise."""
    siblings: tuple[Siblings, ...] = ()
    """Likewise."""
    experts: tuple[Experts, ...] = ()
    """Likewise."""
    pools: tuple[BlasPool, ...] = ()
    """Of more than one thread."""
    convolution_timings: tuple[ConvolutionTiming, ...] = ()
    """Of the one that takes most, where it takes a large part of the time."""
    groups_timings: tuple[GroupsTiming, ...] = ()
    stray_ms: float = 0.0
    """Time without a CPU that may all have fallen into one kind of operator: what takes no longer than this may take
    nothing. Longer waits spread over all of them."""
    optimizer_at: Site | None = None
    """The line that made the job's first optimizer."""

    def flops(self, dtype: str | None = None) -> float:
        """FLOPs per step, of one type or of all."""
        return sum(op.flops_per_step for op in self.ops if dtype is None or op.dtype == dtype)

    def self_ms(self, dtype: str) -> float:
        """Self time per step of the operators of one type and of the complex numbers that are pairs of it, listed or
        not: a Fourier transform's gradient is as dear in double precision as what it is the gradient of."""
        return sum(ms for name, ms in self.self_ms_by_dtype if _is_of(name, dtype))


@dataclass(frozen=True, slots=True)
class Replay:
    """One operator with all that calling it again takes, in another process."""

    name: str
    """`aten::mm`."""
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    calls_per_step: float
    types: tuple[str, ...]
    """Of its arguments, in the profiler's words."""
    concrete: tuple[Any, ...]
    """Arguments that are no tensors."""


@dataclass(frozen=True, slots=True)
class OpsWindow:
    """All that the operator window saw when it closed."""

    profile: OpProfile
    layers: LayerProfile | Missing
    library_use: LibraryUse | Missing
    replays: tuple[Replay, ...] = ()
    """Only under a variable that limits vector extensions."""
    trace: KeptTrace | Missing = NOT_KEPT


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters window, per step: the same in every launch of a job that does the same work."""

    first_step: int
    """The step that it began at: two launches are comparable when they counted the same steps."""
    steps: int
    aten_ops: float
    """All ATen operators, those that others call included."""
    calls: tuple[tuple[str, float], ...]
    """Operators that no other operator called, by name."""
    syncs: float
    """Reads of a scalar: `.item()`, `if tensor:`, and what optimizers do."""
    conversions: float
    """Copies to another type or device."""
    copies: float
    flops: float
    allocations: float | Missing
    allocated_bytes: float | Missing
    kernels: float | Missing
    host_to_device: float | Missing
    device_to_host: float | Missing
    losses: tuple[float, ...]
    """What the backward passes started from, in order."""
    graphs: int | Missing
    """Graphs that torch.compile made until the window closed."""
    graph_breaks: int | Missing
