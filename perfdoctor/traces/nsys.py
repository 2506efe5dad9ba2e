"""Reads what Nsight Systems recorded, from the SQLite database that `nsys export --type sqlite` writes.

Which tables there are depends on what was traced, so that any of those named here may be missing. Times are
nanoseconds; process and thread are packed into one number. PyTorch's operators are there only where the job ran under
`torch.autograd.profiler.emit_nvtx()`, as ranges named `aten::mm, seq = 12`.
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from .assembly import assemble
from .columns import Row, Tables, shapes_text
from .model import NOT_SAID, DeviceFacts, Kind, Trace
from .refusals import damaged_database, no_nsys_export, without_events

SQLITE = b"SQLite format 3\0"
"""How the file of such a database begins."""
_ROWS = 10_000
"""Fetched at once."""
_NS = 1e-3
"""In microseconds."""
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""Whole CUDA graphs, which is what is traced of them unless the user asks for their nodes."""
_WORK = (_KERNEL, _MEMCPY, _MEMSET, _GRAPH)
_NVTX = "NVTX_EVENTS"
_RANGES = (59, 60)
"""Types of NVTX events that last: pushed and popped, started and ended."""
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""As the export's own tables number them, in the words of torch.profiler: `Memcpy HtoD (Pageable -> Device)`."""
_VERSION = re.compile(r"_v\d+$")
"""Of a call: `cudaLaunchKernel_v7000`."""
_SAID = re.compile(r", (?=(?:seq|op_id|sizes|input_op_ids|stashed seq|stashed tid) = )")
"""Between what `emit_nvtx` says of an operator: `aten::mm, seq = 12, op_id = 3, sizes = [[64, 256], [256, 512]]`."""
_SURELY_OPERATORS = ("aten::", "autograd::")
"""Other libraries name ranges in the same way (`cub::DeviceReduce::Sum`), but without a number behind them."""


def read_nsys(path: Path) -> Trace:
    """Raises PerfdoctorError for a database of others, and for a damaged one."""
    try:
        with closing(_opened(path)) as database:
            return _read(path, database)
    except sqlite3.Error as error:
        raise damaged_database(path, str(error)) from error


def _opened(path: Path) -> sqlite3.Connection:
    """Read-only, and without a journal beside it."""
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


def _read(path: Path, database: sqlite3.Connection) -> Trace:
    present = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if not present & {_RUNTIME, *_WORK, _NVTX}:
        raise no_nsys_export(path)
    process, others = _busiest_process(database, present)
    export = _Export(database, present, process)
    export.collect()
    tables = assemble(export.tables, export.left_out)
    if not any(map(len, (tables.operators, tables.calls, tables.work, tables.marks))):
        raise without_events(path)
    problems = [f"{count} event{'s'[: count != 1]} {what}" for what, count in export.left_out.items() if count]
    if others:
        problems.append(f"{others} other process{'es'[: 2 * (others != 1)]}, since one trace is one process")
    return Trace(
        source=path.name,
        writer="nsys",
        names=export.tables.names.all(),
        operators=tables.operators,
        calls=tables.calls,
        work=tables.work,
        marks=tables.marks,
        frames=tables.frames,
        rank=None,
        world_size=None,
        devices=_devices(database, present),
        platform="cuda" if len(tables.calls) or len(tables.work) else "",
        with_stack=False,
        with_shapes=export.has_shapes,
        cut=False,
        problems=tuple(f"left out: {problem}" for problem in problems),
    )


def _busiest_process(database: sqlite3.Connection, present: set[str]) -> tuple[int, int]:
    """The process with most work on devices, or else with most calls or ranges; and how many others have any."""
    for tables, column in ((_WORK, "globalPid"), ((_RUNTIME,), "globalTid"), ((_NVTX,), "globalTid")):
        counts: Counter[int] = Counter()
        for table in present.intersection(tables):
            process = _whole(f"({column} >> 24) & 0xFFFFFF")
            counts.update(dict(database.execute(f"SELECT {process}, COUNT(*) FROM {table} GROUP BY 1")))
        if counts:
            return max(counts, key=lambda process: (counts[process], -process)), len(counts) - 1
    return NOT_SAID, 0


def _devices(database: sqlite3.Connection, present: set[str]) -> tuple[DeviceFacts, ...]:
    if "TARGET_INFO_GPU" not in present:
        return ()
    numbers = ", ".join(map(_whole, ("id", "totalMemory", "smCount")))
    rows = database.execute(f"SELECT name, {numbers} FROM TARGET_INFO_GPU ORDER BY id")
    return tuple(DeviceFacts(index, str(name), max(0, memory), max(0, count)) for name, index, memory, count in rows)


def _whole(expression: str) -> str:
    """SQL for a whole number, whatever the table holds; `NOT_SAID` for nothing."""
    return f"IFNULL(CAST({expression} AS INTEGER), {NOT_SAID})"


class _Export:
    """Rows of one process."""

    def __init__(self, database: sqlite3.Connection, present: set[str], process: int) -> None:
        self.tables = Tables()
        self.left_out: Counter[str] = Counter()
        self.has_shapes = False
        self._database = database
        self._present = present
        self._process = process
        self._strings: dict[int, str] = {}
        if "StringIds" in present:
            self._strings = dict(database.execute(f"SELECT {_whole('id')}, CAST(value AS TEXT) FROM StringIds"))

    def collect(self) -> None:
        """Fill the tables."""
        for batch in self._rows(_RUNTIME, "globalTid", "nameId", "globalTid & 0xFFFFFF", "correlationId"):
            self.tables.extend(
                "calls",
                (
                    (start, end, self._string(name, _VERSION), thread, correlation, NOT_SAID)
                    for start, end, name, thread, correlation, _ in batch
                ),
            )
        self._collect_work(Kind.KERNEL, _KERNEL, "-1", "demangledName")
        self._collect_work(Kind.COPY, _MEMCPY, "bytes", "copyKind", "srcKind", "dstKind")
        self._collect_work(Kind.SET, _MEMSET, "bytes")
        self._collect_work(Kind.KERNEL, _GRAPH, "-1")
        self._collect_ranges()

    def _rows(
        self, table: str, process: str, *columns: str, text: str = "NULL", where: str = "1"
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Of rows that last, start and end in microseconds, some whole numbers, and a text."""
        if table not in self._present:
            return
        numbers = ", ".join(_whole(column) for column in ("start", "end", *columns))
        found = self._database.execute(
            f"SELECT {numbers}, CAST({text} AS TEXT) FROM {table} "
            f"WHERE ({process} >> 24) & 0xFFFFFF = ? AND end IS NOT NULL AND {where}",
            (self._process,),
        )
        while batch := found.fetchmany(_ROWS):
            kept = [(start * _NS, end * _NS, *others) for start, end, *others in batch if end >= start]
            self.left_out["of negative length"] += len(batch) - len(kept)
            yield kept

    def _string(self, identity: int, without: re.Pattern[str] | None = None) -> int:
        """Index of a name."""
        text = self._strings.get(identity) or ""
        return self.tables.names.index(without.sub("", text) if without else text)

    def _collect_work(self, kind: Kind, table: str, size: str, *naming: str) -> None:
        columns = ("deviceId", "streamId", "correlationId", size, *naming)
        for batch in self._rows(table, "globalPid", *columns):
            rows: list[Row] = []
            for start, end, device, stream, correlation, count, *said, _ in batch:
                name = self._work_name(table, said)
                work = (kind.value, device, stream, correlation, NOT_SAID, count, NOT_SAID, NOT_SAID)
                rows.append((start, end, name, *work))
            self.tables.extend("work", rows)

    def _work_name(self, table: str, said: list[int]) -> int:
        """In the words of torch.profiler."""
        if table == _KERNEL:
            return self._string(said[0])
        if table == _MEMCPY:
            direction, source, target = said
            memories = f"{_MEMORIES.get(source, 'Unknown')} -> {_MEMORIES.get(target, 'Unknown')}"
            return self.tables.names.index(f"Memcpy {_DIRECTIONS.get(direction, 'Unknown')} ({memories})")
        return self.tables.names.index("Memset (Device)" if table == _MEMSET else "CUDA graph")

    def _collect_ranges(self) -> None:
        types = f"eventType IN {_RANGES}"
        # Texts that the program did not register stand in the row itself.
        columns = ("textId", "globalTid & 0xFFFFFF")
        for batch in self._rows(_NVTX, "globalTid", *columns, text="text", where=types):
            operators: list[Row] = []
            marks: list[Row] = []
            for start, end, text_id, thread, text in batch:
                name, *said = _SAID.split(text or self._strings.get(text_id) or "")
                index = self.tables.names.index(name)
                if name.startswith(_SURELY_OPERATORS) or (said and ("::" in name or "Backward" in name)):
                    operators.append((start, end, index, thread, NOT_SAID, *self._details(said), NOT_SAID))
                else:
                    marks.append((start, end, index, thread, NOT_SAID))
            self.tables.extend("operators", operators)
            self.tables.extend("marks", marks)

    def _details(self, said: list[str]) -> tuple[int, int, int]:
        """Sequence number, type (never there) and shapes."""
        facts = dict(part.partition(" = ")[::2] for part in said)
        shapes = NOT_SAID
        if "sizes" in facts:
            self.has_shapes = True
            shapes = self.tables.names.index_of_json(facts["sizes"].encode(), shapes_text)
        sequence = facts.get("seq", "")
        return (int(sequence) if sequence.isdecimal() and len(sequence) < 19 else NOT_SAID), NOT_SAID, shapes
