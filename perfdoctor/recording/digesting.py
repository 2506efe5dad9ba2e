"""Makes the digest of a node from the files of its processes.

Short recordings lose nothing. Of long ones durations are rounded, in units of 2, 4, 8, ... us until the columns fit:
with noise of a twentieth of a step, 10,000 steps of 5 ms fit at 8 us. What is rounded is the running total, so that no
mean changes by more than a unit over all steps. Counters are kept at 256 moments, and calls are summed up to 128 of
them for each line.
"""

from __future__ import annotations

import json
import socket
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .digest import SCHEMA, STEPS
from .directory import RunDirectory
from .model import COLUMNS, Columns, Ints, ProcessRecording
from .packing import Packed, pack
from .reader import ProcessFile, kind_of, read_facts

_RANK_BYTES = 64 << 10
"""For each 10,000 steps; the rest of 100 KiB is left to its data-loader workers."""
_STEPS = 10_000
_WORKER_BYTES = 4 << 10
_WORKER_BYTES_PER_BATCH = 2
"""At least the one, and the other for each batch that it made: 8 workers have the rest of the 100 KiB of a rank."""
_COARSEST_US = 1 << 16
_MOST_SAMPLES = 256
_BRIEF_SAMPLES = 16
"""Of the counters by which ranks are compared: the first and the last steady one matter."""
_MOST_CALLS = 128
_BRIEF_CALLS = 16
_TABLE = 8
"""Records of one kind from which on they are written as columns."""
_ONCE = ("process", "torch", "site", "boundary")
"""Records that others refer to, or that are few: they stay as they are, in front."""
_BRIEF = (
    "process",
    "torch",
    "settings",
    "boundary",
    "iter",
    "compiled",
    "cycle",
    "batch",
    "ddp",
    "division",
    "ray",
    "trials",
)
"""What ranks are compared by, with a few samples and the calls of collectives: which steps are steady, and what they
read."""

_EARLY = 1000
"""Lines of a file in which its settings stand: they are written at the second step."""

Record = dict[str, Any]


class DigestWriter:
    """Gathers the processes of a node, and writes them as one digest."""

    def __init__(self) -> None:
        self._processes: list[dict[str, Any]] = []
        self._body = bytearray()

    def add(self, name: str, recording: ProcessRecording, records: Sequence[Record]) -> None:
        """A process: the name of its file, what the reader makes of it, and its records but columns."""
        start = len(self._body)
        worker = recording.worker
        entry = {
            "name": name,
            "role": recording.role,
            "pid": recording.header.pid,
            "parent": worker.ppid if worker is not None else 0,
            "world_size": recording.world_size,
            "size_bytes": recording.size_bytes,
            "problems": recording.problems,
            "left_out": recording.device_left_out,
            "brief": self._part(_lines(_brief(records))),
            **self._records(_reduced(records)),
        }
        packed = _fitted(recording, _room(recording) - (len(self._body) - start))
        columns = {kind: {name: self._column(one) for name, one in some.items()} for kind, some in packed.items()}
        self._processes.append(entry | {"columns": columns})

    def write(self, directory: RunDirectory, node: str) -> Path | None:
        """`digest-<node>.bin`; None without a process. Whoever reads meanwhile sees the one before. Raises OSError."""
        if not self._processes:
            return None
        index = zlib.compress(json.dumps({"processes": self._processes}, separators=(",", ":")).encode())
        head = json.dumps({"schema": SCHEMA, "index": len(index), "parts": len(self._body)}).encode() + b"\n"
        safe = "".join(one if one.isalnum() or one in "._-" else "-" for one in node)
        beside = directory.path / f"digest-{safe}.part"
        beside.write_bytes(b"".join((head, index, self._body)))
        return beside.replace(beside.with_suffix(".bin"))

    def _part(self, data: bytes) -> tuple[int, int]:
        offset = len(self._body)
        self._body += data
        return offset, len(data)

    def _column(self, packed: Packed) -> list[int | None]:
        return [packed.n, packed.least, packed.first, packed.unit, packed.width, *self._part(packed.planes)]

    def _records(self, kinds: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
        """Records as lines, and those of which there are many as tables."""
        lines: list[Record] = []
        tables: list[dict[str, Any]] = []
        for kind, records in kinds.items():
            names = list(records[0])
            if kind in _ONCE or len(records) < _TABLE or any(list(record) != names for record in records):
                lines += records
                continue
            fields = {name: self._field([record[name] for record in records]) for name in names if name != "k"}
            tables.append({"kind": kind, "fields": fields})
        return {"all": self._part(_lines(lines)), "tables": tables}

    def _field(self, values: Sequence[Any]) -> list[Any]:
        """A field of a table: a column where it has only whole numbers, else a list in a list."""
        if all(type(value) is int and abs(value) < 1 << 62 for value in values):
            return self._column(pack(np.array(values, np.int64)))
        return [list(values)]


def write_digest(directory: RunDirectory) -> Path | None:
    """The digest of all processes in a run directory, beside their files; None where there are none. Raises OSError,
    and PerfdoctorError where it is no run directory."""
    cwd = read_facts(directory).cwd
    writer = DigestWriter()
    for path in directory.process_files():
        file = ProcessFile(path, cwd)
        file.refresh()
        recording = file.recording()
        if recording is not None:
            writer.add(path.name, recording, list(records_of(path)))
    return writer.write(directory, socket.gethostname())


def world_size(directory: RunDirectory) -> int:
    """Ranks of the job, as torch's process group told the first process that had one; 1 without any. Raises OSError."""
    for path in directory.process_files():
        with path.open("rb") as lines:
            for line in islice(lines, _EARLY):
                if line.startswith(b'{"k":"settings"') and (told := _json(line).get("world_size")):
                    return int(told)
    return 1


def _json(line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _room(recording: ProcessRecording) -> int:
    """Bytes for a process."""
    if recording.worker is not None:
        return max(_WORKER_BYTES, _WORKER_BYTES_PER_BATCH * len(recording.fetches))
    return int(_RANK_BYTES * max(1.0, len(recording.steps) / _STEPS))


def records_of(path: Path) -> Iterator[Record]:
    """All that the reader would make something of, but columns."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            record = json.loads(line)
            kind = kind_of(record)
        except (ValueError, TypeError, KeyError):
            continue
        if kind not in COLUMNS:
            yield record


def _brief(records: Sequence[Record]) -> list[Record]:
    samples = [record for record in records if record["k"] == "sample"]
    calls = _summed([record for record in records if _is_collective(record)], _BRIEF_CALLS)
    lines = {call.get("site") for call in calls}
    sites = [record for record in records if record["k"] == "site" and record.get("id") in lines]
    compared = [record for record in records if record["k"] in _BRIEF]
    return [*sites, *compared, *_thinned(samples, _BRIEF_SAMPLES), *calls]


def _is_collective(record: Record) -> bool:
    return record["k"] == "call" and str(record.get("kind")).startswith("dist.")


def _thinned(records: Sequence[Record], most: int) -> list[Record]:
    """At most so many of them, evenly, the first and the last among them."""
    if len(records) <= most:
        return list(records)
    return [records[int(place)] for place in np.linspace(0, len(records) - 1, most).round()]


def _reduced(records: Sequence[Record]) -> dict[str, list[Record]]:
    """By kind, where there are many of them fewer."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        kinds[record["k"]].append(record)
    for kind in ("sample", "worker_sample"):
        if kind in kinds:
            kinds[kind] = _thinned(kinds[kind], _MOST_SAMPLES)
    if "call" in kinds:
        kinds["call"] = _summed(kinds["call"], _MOST_CALLS)
    return kinds


def _summed(calls: Sequence[Record], most: int) -> list[Record]:
    """Neighbouring records of a line in one, where it has more than so many."""
    lines: dict[tuple[Any, Any], list[Record]] = defaultdict(list)
    for call in calls:
        lines[call.get("kind"), call.get("site")].append(call)
    if all(len(of_line) <= most for of_line in lines.values()):
        return list(calls)
    summed = []
    for of_line in lines.values():
        borders = np.linspace(0, len(of_line), min(len(of_line), most) + 1).round().astype(int)
        for start, stop in pairwise(borders):
            some = of_line[start:stop]
            sums = {name: sum(call.get(name, 0) for call in some) for name in ("count", "us", "bytes")}
            summed.append(some[-1] | sums)
    return sorted(summed, key=lambda call: call.get("step", 0))


def _lines(records: Sequence[Record]) -> bytes:
    return zlib.compress("\n".join(json.dumps(record, separators=(",", ":")) for record in records).encode(), 9)


def _fitted(recording: ProcessRecording, room: int) -> dict[str, dict[str, Packed]]:
    """All columns with entries, as fine as there is room for."""
    unit = 1
    packed = _packed(recording, unit)
    while sum(len(one.planes) for some in packed.values() for one in some.values()) > room and unit < _COARSEST_US:
        unit *= 2
        packed = _packed(recording, unit)
    return packed


def _packed(recording: ProcessRecording, unit_us: int) -> dict[str, dict[str, Packed]]:
    found = {}
    for kind in COLUMNS:
        columns: Columns = getattr(recording, kind)
        if len(columns):
            names = (*STEPS, *COLUMNS[kind]) if kind == "steps" else COLUMNS[kind]
            found[kind] = {name: pack(_stored(columns, name), _unit(name, unit_us)) for name in names}
    return found


def _stored(columns: Columns, name: str) -> Ints:
    """Of the ends of steps what their lengths do not say."""
    if name != "end_ns":
        return columns[name]
    return np.asarray(np.diff(columns["end_ns"], prepend=0) - 1000 * columns["wall_us"], np.int64)


def _unit(name: str, unit_us: int) -> int:
    """Only durations are rounded."""
    return unit_us if name == "us" or name.endswith("_us") else 1
