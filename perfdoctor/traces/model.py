"""A trace in memory: the events of one process as columns. Nothing is interpreted here beyond what kind an event is.

All times are microseconds since the earliest event of the trace; names are indices into `Trace.names`; -1 stands for
what an event does not say. Rows are sorted by their start.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.bool_] | npt.NDArray[np.int64] | slice

NOT_SAID = -1

S = TypeVar("S", bound="Spans")


class Kind(IntEnum):
    """What a device was busy with."""

    KERNEL = 0
    COPY = 1
    SET = 2


@dataclass(frozen=True, slots=True)
class Spans:
    """Events that last; all columns have the same length."""

    start_us: Floats
    end_us: Floats
    name: Ints

    def __len__(self) -> int:
        return len(self.start_us)

    def where(self: S, rows: Rows) -> S:
        """Some of the rows."""
        return replace(self, **{column.name: getattr(self, column.name)[rows] for column in fields(self)})


@dataclass(frozen=True, slots=True)
class HostSpans(Spans):
    """On a thread of the process: Python functions, `train.py(41): main`."""

    thread: Ints


@dataclass(frozen=True, slots=True)
class Marks(HostSpans):
    """User annotations: `ProfilerStep#3`, `Optimizer.step#SGD.step`."""

    stack: Ints
    """As of `Operators`."""


@dataclass(frozen=True, slots=True)
class Operators(HostSpans):
    """`cpu_op` events: `aten::mm`, `autograd::engine::evaluate_function: MmBackward0`."""

    external: Ints
    """The profiler's identity of the operator, by which calls and kernels name it."""
    sequence: Ints
    """Autograd's number, the same for a forward operator and its backward one."""
    dtype: Ints
    """Name of the type of the first floating-point input, as in `float32`."""
    shapes: Ints
    """Name made of the inputs' shapes, scalars left out: `[64, 256] [256, 512]`."""
    stack: Ints
    """Name made of the call stack, innermost frame first and `;` between, where the trace has it at the operator."""


@dataclass(frozen=True, slots=True)
class Calls(HostSpans):
    """Of the driver and the runtime: `cudaLaunchKernel`, `hipFree`."""

    correlation: Ints
    external: Ints


@dataclass(frozen=True, slots=True)
class Work(Spans):
    """What a device did, in the order in which it began."""

    kind: Ints
    """A `Kind`."""
    device: Ints
    stream: Ints
    correlation: Ints
    external: Ints
    call: Ints
    """Row of the call that asked for it; `NOT_SAID` where that is not in the trace."""
    bytes: Ints
    """Of copies and sets."""
    collective: Ints
    """Name of the collective, where the profiler says it: `allreduce`."""
    elements: Ints
    """Of the collective's input."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as the trace describes it."""

    index: int
    name: str
    memory_bytes: int = 0
    multiprocessors: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """One process."""

    source: str
    """The file's name, without the folder."""
    writer: Literal["torch.profiler", "nsys"]
    names: tuple[str, ...]
    operators: Operators
    calls: Calls
    work: Work
    marks: Marks
    """User annotations on the host."""
    frames: HostSpans
    """Python functions: `train.py(41): main`."""
    rank: int | None
    """None where the trace does not say."""
    world_size: int | None
    devices: tuple[DeviceFacts, ...]
    platform: Literal["cuda", "rocm", "xpu", ""]
    """"" where no device was recorded."""
    with_stack: bool
    with_shapes: bool
    cut: bool
    """The file ends in the middle."""
    problems: tuple[str, ...] = ()
    """What had to be left out, a sentence each: events of impossible length, names that are no text."""

    def named(self, index: int) -> str:
        """The name behind an index; "" for `NOT_SAID`."""
        return "" if index < 0 else self.names[index]
