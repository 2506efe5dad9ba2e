"""What the two windows wrote, typed: operators by kind and by layer, lines and telling calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .library import LibraryUse


@dataclass(frozen=True, slots=True)
class OpRow:
    """One kind of operator in the operator window; microseconds and calls of the whole window."""

    name: str
    dtype: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 0
    self_us: int = 0
    total_us: int = 0
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """One operator timed in its own type and in float32."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...] = ()
    us: float = 0.0
    float32_us: float = 0.0


@dataclass(frozen=True, slots=True)
class LibraryTiming:
    """One operator timed with oneDNN off and on."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...] = ()
    native_us: float = 0.0
    onednn_us: float = 0.0


@dataclass(frozen=True, slots=True)
class LayoutTiming:
    """One operator timed with the channels of its images first and last in memory."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...] = ()
    first_us: float = 0.0
    last_us: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """One operator timed with the job's batch, `factor` times it, and a quarter of it."""

    name: str
    dtype: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 0
    factor: int = 2
    us: float = 0.0
    larger_us: float = 0.0
    smaller_us: float | None = None


@dataclass(frozen=True, slots=True)
class BatchTimings:
    """Operators with other batches, and what the machine reaches at best."""

    ops: tuple[BatchTiming, ...] = ()
    smaller: int = 4
    """The divisor behind `smaller_us`."""
    peak_gflops: float = 0.0
    floor_us: float = 0.0


@dataclass(frozen=True, slots=True)
class UpdateTiming:
    """One update of the optimizer, each way that it knows."""

    optimizer: str = ""
    made: str = ""
    """What the job does: `loop`, `foreach` or `fused`."""
    tensors: int = 0
    elements: int = 0
    part: float = 1.0
    """Share of the elements that were timed."""
    now_us: float = 0.0
    foreach_us: float | None = None
    fused_us: float | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """One operator with all that calling it again takes."""

    name: str
    dtype: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 0
    total_us: int = 0
    types: tuple[str, ...] = ()
    concrete: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One module in the operator window; microseconds, calls and FLOPs of the whole window, without its children."""

    name: str
    kind: str = ""
    order: int = 0
    leaf: bool = True
    calls: int = 0
    forward_us: int = 0
    backward_us: int = 0
    flops: int = 0
    parameters: int = 0
    bytes: int = 0
    input: tuple[int, ...] = ()
    weight: tuple[int, ...] = ()
    aside: bool = False
    """Of a model in evaluation mode whose input needs no gradient. False in an older recording."""
    idle: bool = False
    """Of a model in training mode whose input needs no gradient, and whose parameters no optimizer updates."""
    site: int = -1
    """Of a module that the loop calls itself: where."""
    own: bool = False
    """Its `forward` is the user's. False in an older recording."""


@dataclass(frozen=True, slots=True)
class LayersSeen:
    """The modules of the operator window."""

    total_us: int = 0
    """Of all profiled work, in a module or not."""
    on_device: bool = False
    flops: int = 0
    count: int = 0
    modules: tuple[LayerRow, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """One device in the operator window; microseconds of the whole window."""

    index: int = 0
    streams: int = 1
    kernels_us: int = 0
    """Added up: kernels that overlap count twice."""
    busy_us: int = 0
    """With a kernel on."""
    active_us: int = 0
    """With a kernel or a copy on."""


@dataclass(frozen=True, slots=True)
class OpsWindow:
    """The operator window."""

    steps: int = 1
    aten: int = 0
    ops: tuple[OpRow, ...] = ()
    timed: bool = False
    """Whether operators were timed after the last step; a job that is killed or leaves by `os._exit` has no timings."""
    timings: tuple[Timing, ...] = ()
    self_us: Mapping[str, int] = field(default_factory=dict)
    device: Mapping[str, int] = field(default_factory=dict)
    pauses_us: int | None = None
    """Between operators, those of 0.2 ms and more: code of the job that calls none. None in an older recording."""
    busy_us: int | None = None
    """With a kernel on some device; None on the CPU and in an older recording, which has only the sum of kernels."""
    devices: tuple[DeviceWork, ...] = ()
    layers: LayersSeen | None = None
    missing: str = ""
    onednn: tuple[LibraryTiming, ...] = ()
    layout: tuple[LayoutTiming, ...] = ()
    waited: tuple[int, int] | None = None
    """Microseconds in the whole window for which the training thread was runnable without a CPU, and how often it
    got one."""
    batch: BatchTimings | None = None
    update: UpdateTiming | None = None
    """None without an optimizer, in a job that compiles, on CUDA, and in a recording older than this."""
    library: LibraryUse | None = None
    """None in a recording older than this."""
    replay: tuple[Replay, ...] = ()
    """Only under a variable that caps the instruction set."""

    @property
    def stray_us(self) -> float:
        """Time without a CPU that may all be in one operator: two of them, at their mean length."""
        delay, times = self.waited or (0, 0)
        return delay * min(1.0, 2 / max(1, times))


@dataclass(frozen=True, slots=True)
class SiteCall:
    """Calls of one kind from one line in the call-site window."""

    kind: str
    site: int
    detail: str = ""
    count: int = 0
    us: int = 0
    size: int = 0
    by_library: bool = False
    """A library reads for a purpose of its own. False in an older recording."""


@dataclass(frozen=True, slots=True)
class LineRow:
    """What one line issued in one part of the step; microseconds and operators of the whole window."""

    site: int
    part: str = "other"
    ops: int = 0
    us: int = 0
    python_us: int = 0
    calls: int = 0
    places: int = 1
    passes: int = 0
    """Backward passes in which it issued something; 0 in an older recording."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """Indices of one kind into something of one size, in the call-site window."""

    kind: str
    """`target`: classes that a loss was given; `lookup`: rows of an embedding table."""
    size: int = 0
    """Classes, or rows."""
    width: int = 0
    """Of a row; 0 for classes."""
    count: int = 0
    distinct: int = 0
    highest: int = 0


@dataclass(frozen=True, slots=True)
class SitesWindow:
    """The call-site window."""

    steps: int = 1
    ops: int = 0
    calls: tuple[SiteCall, ...] = ()
    lines: tuple[LineRow, ...] | None = None
    """None in a recording older than these."""
    lines_us: Mapping[str, int] = field(default_factory=dict)
    lines_ops: Mapping[str, int] = field(default_factory=dict)
    indices: tuple[IndexRow, ...] | None = None
    """None in a recording older than these."""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class CodeRow:
    """One line of the user's code in one part of the step, with all that it called in libraries; microseconds."""

    site: int
    part: str = "other"
    called: bool = False
    """Whether its function was entered inside the part: a data set's `__getitem__` in the wait for data, say."""
    us: int = 0


@dataclass(frozen=True, slots=True)
class LinesWindow:
    """The line window, or one batch that a worker made line by line."""

    steps: int = 1
    lines: tuple[CodeRow, ...] = ()
    """The largest first."""
    lines_us: Mapping[str, int] = field(default_factory=dict)
    """Of all lines, by part."""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class CountersWindow:
    """The counters window; totals of the whole window."""

    first: int = 0
    """The step it opened at."""
    steps: int = 1
    aten: int = 0
    """All ATen operators, those that others call included."""
    syncs: int = 0
    conversions: int = 0
    copies: int = 0
    flops: int = 0
    allocations: int | None = None
    allocated_bytes: int | None = None
    """None where memory could not be profiled without a word on the job's stderr."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Operators that no other operator called, by name."""
    device: Mapping[str, int] = field(default_factory=dict)
    """Kernels and copies on the device; empty on the CPU."""
    losses: tuple[float, ...] = ()
    """What the first backward passes started from, where that was one number."""
    graphs: int | None = None
    """Compiled by torch.compile since the start; None in a job that does not use it."""
    graph_breaks: int | None = None
    missing: str = ""
