"""Traces built by hand, of two steps of 1,000 us on one device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfdoctor.traces.model import (
    NOT_SAID,
    Calls,
    DeviceFacts,
    HostSpans,
    Kind,
    Marks,
    Operators,
    Trace,
    Work,
)

MAIN, ENGINE = 1, 2


@dataclass
class TraceByHand:
    """Collects events; times are microseconds."""

    operators: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    works: list[tuple[Any, ...]] = field(default_factory=list)
    marks: list[tuple[Any, ...]] = field(default_factory=list)
    frames: list[tuple[Any, ...]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names)) if text else NOT_SAID

    def mark(self, text: str, start: float, end: float, thread: int = MAIN, stack: str = "") -> None:
        self.marks.append((start, end, self.name(text), thread, self.name(stack)))

    def frame(self, text: str, start: float, end: float, thread: int = MAIN) -> None:
        self.frames.append((start, end, self.name(text), thread))

    def op(self, text: str, start: float, end: float, thread: int = MAIN, **said: Any) -> int:
        external = said.get("external", 1000 + len(self.operators))
        columns = [self.name(said.get(column, "")) for column in ("dtype", "shapes", "stack")]
        self.operators.append((start, end, self.name(text), thread, external, said.get("sequence", NOT_SAID), *columns))
        return int(external)

    def call(self, text: str, start: float, end: float, correlation: int = NOT_SAID, thread: int = MAIN) -> None:
        self.calls.append((start, end, self.name(text), thread, correlation, NOT_SAID))

    def work(
        self,
        text: str,
        start: float,
        end: float,
        asked: float | None = None,
        *,
        kind: Kind = Kind.KERNEL,
        stream: int = 7,
        external: int = NOT_SAID,
        thread: int = MAIN,
        collective: str = "",
        device: int = 0,
        before: bool = False,
    ) -> None:
        """Work that the host asked for then; never, where it does not say, or `before` the trace."""
        correlation = len(self.works) if asked is not None or before else NOT_SAID
        if asked is not None:
            self.call("cudaLaunchKernel", asked, asked + 5, correlation, thread)
        row = (start, end, self.name(text), int(kind), device, stream, correlation, external, NOT_SAID, 4096)
        self.works.append((*row, self.name(collective), NOT_SAID))

    def steps(self, number: int = 2, length: float = 1000.0) -> None:
        for step in range(number):
            self.mark(f"ProfilerStep#{step + 3}", step * length, (step + 1) * length)

    def trace(self, **changes: Any) -> Trace:
        calls = _columns(Calls, self.calls, 6)
        work = _columns(Work, self.works, 12)
        by_correlation = {int(one): row for row, one in enumerate(calls.correlation) if one != NOT_SAID}
        work.call[:] = [by_correlation.get(int(one), NOT_SAID) for one in work.correlation]
        said: dict[str, Any] = {
            "source": "trace.json",
            "writer": "torch.profiler",
            "operators": _columns(Operators, self.operators, 9),
            "calls": calls,
            "work": work,
            "marks": _columns(Marks, self.marks, 5),
            "frames": _columns(HostSpans, self.frames, 4),
            "rank": None,
            "world_size": None,
            "devices": (DeviceFacts(0, "NVIDIA A100-SXM4-40GB"),),
            "platform": "cuda",
            "with_stack": bool(self.frames),
            "with_shapes": False,
            "cut": False,
            "names": tuple(self.names),
        }
        return Trace(**(said | changes))


def _columns(kind: Any, rows: Sequence[tuple[Any, ...]], width: int) -> Any:
    ordered: Iterable[tuple[Any, ...]] = sorted(rows, key=lambda row: (row[0], -row[1]))
    columns = list(zip(*ordered, strict=True)) or [()] * width
    floats = [np.array(column, dtype=np.float64) for column in columns[:2]]
    return kind(*floats, *(np.array(column, dtype=np.int64) for column in columns[2:]))
