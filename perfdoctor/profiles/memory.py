"""What the memory of a steady step consists of when it is largest, and what makes the largest part of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..recording.base import Missing, Site
from ..recording.memory import MadeBy, PeakOfDevice
from ..recording.model import ProcessRecording, Recording

MAPPED, REST = "mapped", "rest"
"""What no tensor seen has: files (libraries) and shared memory; all that remains."""
_ORDER = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "activations",
    "batch",
    "backward",
    "update",
    "other",
    "held",
)
_OF_THE_STEP = ("activations", "batch", "backward", "update", "other")
"""What a line of the step has made."""
NOT_ASKED = Missing("the memory was not looked at", "record it with `perfdoctor profile --memory`")


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of the memory."""

    what: str
    """As the kinds of `recording.memory`; `mapped` and `rest`."""
    bytes: int
    count: int = 0
    """Storages of tensors."""


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """One device's memory, of one process."""

    name: str
    """`cpu`, `cuda:0 of rank 1`."""
    device: str
    total_bytes: int
    pieces: tuple[Piece, ...]
    """They add up to the whole."""
    part: str
    """Of the step, when memory is largest; "" at its border."""
    site: Site | None
    """The line that needed the last of it."""
    made_by: tuple[MadeBy, ...]
    """Lines and layers of the step, the largest first."""
    is_whole: bool
    """Whether the process's memory is known, and not only that of tensors."""
    unwatched: str = ""
    """Why this is the memory between two steps, and not the peak; "" where it is the peak."""


def build(recording: Recording) -> tuple[MemoryProfile, ...] | Missing:
    """Of every rank and device; or why there is nothing."""
    found: list[MemoryProfile] = []
    reasons: list[Missing] = []
    for process in recording.ranks:
        window = process.memory
        if window is None or isinstance(window, Missing):
            reasons.append(_why(process, window))
            continue
        of_rank = f" of rank {process.rank}" if len(recording.ranks) > 1 else ""
        found += [_profile(peak, of_rank, window.unwatched) for peak in window.devices]
    return tuple(found) or next(iter(reasons), Missing("no training or inference step was seen", code="no-step"))


def _why(process: ProcessRecording, window: Missing | None) -> Missing:
    if window is not None:
        return window
    failed = next((fault for fault in process.faults if fault.hook == "window memory"), None)
    return Missing(f"the window failed: {failed.error}") if failed else NOT_ASKED


def _profile(peak: PeakOfDevice, of_rank: str, unwatched: str) -> MemoryProfile:
    known = {kind.what: kind for kind in peak.kinds}
    pieces = [Piece(what, known[what].bytes, known[what].count) for what in _ORDER if what in known]
    tensors = sum(piece.bytes for piece in pieces)
    if peak.whole_bytes:
        # What tensors have asked for and nobody has written to is not resident.
        rest = max(0, peak.whole_bytes - tensors - peak.mapped_bytes)
        pieces += [Piece(what, size) for what, size in ((MAPPED, peak.mapped_bytes), (REST, rest)) if size]
    return MemoryProfile(
        name=f"{peak.device}{of_rank}",
        device=peak.device,
        total_bytes=sum(piece.bytes for piece in pieces),
        pieces=tuple(pieces),
        part=peak.part,
        site=peak.site,
        made_by=tuple(one for one in peak.largest if one.what in _OF_THE_STEP),
        is_whole=peak.whole_bytes > 0,
        unwatched=unwatched,
    )
