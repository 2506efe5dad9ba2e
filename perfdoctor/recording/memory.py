"""What the memory of a step consists of when it is largest."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Site


@dataclass(frozen=True, slots=True)
class KindOfTensors:
    """Tensors alive at the peak that serve the same; storages that several share count once."""

    what: str
    """`parameters`, `gradients`, `optimizer_state`, `buffers`; `held`, any other that was there before the step; of
    those that the step has made or been given `batch`, `activations` (made by the forward pass), `backward`, `update`
    and `other`."""
    bytes: int
    count: int
    """Storages."""


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Tensors alive at the peak that one line has made in one layer."""

    what: str
    """As of `KindOfTensors`."""
    bytes: int
    count: int
    site: Site | None
    layer: str = ""
    """Its name in the model; "" outside of any, and for the model itself."""
    layer_kind: str = ""
    """Its class."""


@dataclass(frozen=True, slots=True)
class PeakOfDevice:
    """The moment of a step at which the tensors of a device need most."""

    device: str
    kinds: tuple[KindOfTensors, ...]
    largest: tuple[MadeBy, ...]
    """The largest first, of those that were made in the step."""
    whole_bytes: int = 0
    """That the process has of the device's memory: resident, of a CPU; of a GPU what torch's allocator has reserved.
    0 where nobody says."""
    mapped_bytes: int = 0
    """Of these in files (libraries) and shared memory, without tensors."""
    part: str = ""
    """Of the step; "" before it has needed any."""
    site: Site | None = None
    """The line that needed the last of it."""


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """One step."""

    devices: tuple[PeakOfDevice, ...]
    unwatched: str = ""
    """Why the step was not watched, and its end is told instead of its peak."""


@dataclass(frozen=True, slots=True)
class TypeHeld:
    """Objects of one type, at the end of a few steps and before them."""

    name: str
    """`list`, `torch.Tensor`, `__main__.Sample`."""
    count: int
    bytes: int
    """Their own, and the data of tensors and arrays; data that several share counts once."""
    count_before: int
    bytes_before: int


@dataclass(frozen=True, slots=True)
class LineHeld:
    """What a line has made in a few steps that was still there at their end, with all that it calls in libraries."""

    site: Site | None
    count: int
    """Objects that Python's collector knows: containers, instances, tensors; no numbers and no text."""
    bytes: int
    """That Python and NumPy have allocated, and the data of tensors."""
    type: str
    """Of most of these objects."""


@dataclass(frozen=True, slots=True)
class ObjectsWindow:
    """What Python holds."""

    steps: int
    """Between the two moments."""
    types: tuple[TypeHeld, ...]
    """The largest, then more of those that have grown most."""
    lines: tuple[LineHeld, ...]
    """The largest first."""
    by_line: bool
    """Whether lines were noted: not in a job that runs `tracemalloc` itself."""
    is_cut: bool = False
    """Whether there were more objects than there was time to count."""
    first_step: int = 0
    """Number of the step that it opened at."""
