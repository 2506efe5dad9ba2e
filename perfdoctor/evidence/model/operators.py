"""What the windows saw: operators, timings, telling lines."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing, Site

NOT_TIMED = Missing(
    "the job was gone before its operators could be timed",
    "let perfdoctor stop it (--steps), or let it end without os._exit and signals",
)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line in the job's loop that calls something worth knowing, from the call-site window or a wrapper."""

    kind: str
    """`empty_cache`, `item`, `to_float64`, ..."""
    site: Site
    calls_per_step: float
    ms_per_step: float
    detail: str = ""
    by_library: bool = False
    """Of a scalar read: a library reads for a purpose of its own (torch.distributions checks arguments)."""


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
class DtypeTiming:
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
class ThreadTiming:
    """The job's own largest operators, timed in this process with a number of intra-op threads."""

    threads: int
    milliseconds: float
    """One round of them all, mean; comparable between the entries of one run only."""
    rounds: int = 1
    """Rounds, half a second or more apart."""


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """One of the job's own products, timed in this process with other numbers of samples; milliseconds of one call."""

    name: str
    shapes: str
    calls_per_step: float
    milliseconds: float
    """With the job's batch."""
    factor: int
    larger_milliseconds: float
    """With `factor` times the batch."""
    smaller_milliseconds: float | None = None
    """With a `BatchTimings.smaller`th of the batch; None for small operators."""

    @property
    def growing_milliseconds(self) -> float:
        """The part of one call that grows with the batch, from the two sizes; no more than the whole."""
        slope = (self.larger_milliseconds - self.milliseconds) / (self.factor - 1)
        return min(self.milliseconds, max(0.0, slope))


@dataclass(frozen=True, slots=True)
class BatchTimings:
    """What the job's largest products take with larger and smaller batches."""

    ops: tuple[BatchTiming, ...]
    smaller: int
    peak_gflops: float
    """Of a float32 product that fits the caches, in this process: 10^9 operations per second."""
    floor_ms: float
    """One call of the smallest operator."""


@dataclass(frozen=True, slots=True)
class UpdateTiming:
    """One update of the job's optimizer, timed in its process on tensors of the same shapes."""

    optimizer: str
    """`Adam`."""
    made: str
    """How the job does it: `loop`, over one tensor after another, `foreach` or `fused`."""
    tensors: int
    now_ms: float
    foreach_ms: float | None
    """With `foreach=True`; None where it is so, or not known to this optimizer."""
    fused_ms: float | None
    """With `fused=True`; likewise."""
    part: float = 1.0
    """The share of all elements that these times are of."""


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """One CUDA device in the operator window. Per step, milliseconds."""

    index: int
    streams: int
    """On which something ran."""
    kernels_ms: float
    """Added up: kernels that overlap count twice."""
    busy_ms: float
    """With a kernel on."""
    active_ms: float
    """With a kernel or a copy on."""


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
    timings: tuple[DtypeTiming, ...] = ()
    thread_timings: tuple[ThreadTiming, ...] = ()
    """By number of threads; empty when nothing could be replayed."""
    device_copies_ms: float = 0.0
    """Host-to-device copies on the device timeline, per step."""
    pageable_copies_ms: float = 0.0
    """Those of them from pageable memory."""
    device_busy_ms: float | None = None
    """Time per step with a kernel on some device, each moment counted once; None on the CPU. In a recording older than
    that, all kernels added up: with several streams at once that is too much."""
    pauses_ms: float | None = None
    """Per step between operators, in pauses of 0.2 ms and more: the job's own code, a wait. In all parts of the step,
    also beside forward and backward. None in an older recording."""
    devices: tuple[DeviceWork, ...] = ()
    """By index; empty on the CPU and in older recordings."""
    batch_timings: BatchTimings | Missing = NOT_TIMED
    update: UpdateTiming | Missing = NOT_TIMED
    stray_ms: float = 0.0
    """Time per step without a CPU that may all have fallen into one kind of operator: what takes no longer than this
    may take nothing. Longer waits spread over all of them."""

    def flops(self, dtype: str | None = None) -> float:
        """FLOPs per step, of one type or of all."""
        return sum(op.flops_per_step for op in self.ops if dtype is None or op.dtype == dtype)

    def self_ms(self, dtype: str) -> float:
        """Self time per step of the operators of one type, listed or not."""
        return dict(self.self_ms_by_dtype).get(dtype, 0.0)
