"""Reads a trace of torch.profiler, in either of its schemas, or of Nsight Systems into columns.

A file is read block by block, so that what it takes in memory is its columns and one block, not its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .assembly import Assembled, assemble
from .chrome import ChromeEvents
from .model import DeviceFacts, Trace
from .nsys import SQLITE, read_nsys
from .refusals import no_trace, unreadable, without_events
from .text import NoEventsError, TraceText

Platform = Literal["cuda", "rocm", "xpu", ""]
_CALLS: dict[Platform, tuple[str, ...]] = {"cuda": ("cu",), "rocm": ("hip",), "xpu": ("ur", "ze", "pi")}
"""How calls begin: `cudaLaunchKernel`, `cuLaunchKernelEx`, `hipMemcpyAsync`, `urEnqueueKernelLaunch`."""

_MAKERS: dict[str, Platform] = {"AMD": "rocm", "Intel(R)": "xpu", "Intel": "xpu"}
"""First words of devices' names; CUDA's have begun with `NVIDIA`, `Tesla`, `GeForce` and `Quadro`."""


def read(path: Path) -> Trace:
    """Raises PerfdoctorError for what is no trace, or has no events."""
    text, events = TraceText(path), ChromeEvents()
    try:
        with path.open("rb") as file:
            if file.read(len(SQLITE)) == SQLITE:
                return read_nsys(path)
        for block in text.blocks():
            events.add(block)
    except NoEventsError as error:
        raise no_trace(path, error.args[0]) from None
    except OSError as error:
        raise unreadable(path, error) from error
    left_out = events.left_out
    left_out["that cannot be read"] += text.unread
    tables = assemble(events.tables, left_out)
    if not any(map(len, (tables.operators, tables.calls, tables.work, tables.marks, tables.frames))):
        raise without_events(path, events.foreign)
    names = events.tables.names.all()
    rank, world_size = text.place
    devices = _devices(text.said("deviceProperties"))
    problems = [f"{count} event{'s'[: count != 1]} {what}" for what, count in left_out.items() if count]
    if text.header_unread:
        problems.append("what the file says before its events")
    return Trace(
        source=path.name,
        writer="torch.profiler",
        names=names,
        operators=tables.operators,
        calls=tables.calls,
        work=tables.work,
        marks=tables.marks,
        frames=tables.frames,
        rank=rank,
        world_size=world_size,
        devices=devices,
        platform=_platform(tables, devices, names),
        with_stack=bool(text.said("with_stack")) or len(tables.frames) > 0 or bool((tables.operators.stack >= 0).any()),
        with_shapes=bool(text.said("record_shapes")) or events.has_shapes,
        cut=text.cut,
        problems=tuple(f"left out: {problem}" for problem in problems),
    )


def _devices(said: Any) -> tuple[DeviceFacts, ...]:
    found = []
    for number, facts in enumerate(said if isinstance(said, list) else ()):
        if isinstance(facts, dict):
            index, memory, multiprocessors = (
                facts[name] if type(facts.get(name)) is int else default
                for name, default in (("id", number), ("totalGlobalMem", 0), ("numSms", 0))
            )
            found.append(DeviceFacts(index, str(facts.get("name", "")), memory, multiprocessors))
    return tuple(found)


def _platform(tables: Assembled, devices: Sequence[DeviceFacts], names: Sequence[str]) -> Platform:
    """By the names of most calls, or else, where there is work, by who made the device."""
    counts = Counter[Platform]()
    for index, count in zip(*np.unique(tables.calls.name, return_counts=True), strict=True):
        for platform, beginnings in _CALLS.items():
            if names[index].startswith(beginnings):
                counts[platform] += int(count)
    if len(tables.calls) or not len(tables.work) or not devices:
        return max(counts, key=counts.__getitem__, default="")
    return _MAKERS.get(devices[0].name.partition(" ")[0], "cuda")
