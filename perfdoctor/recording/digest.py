"""A digest: what a diagnosis needs of the processes of one node, in one file of at most 100 KiB for 10,000 steps of a
rank.

It holds the records of each process as they are, and its columns packed. What all ranks of a job are compared by can be
read without the rest: a few records, and each column by itself when it is asked for.

The file: a line of JSON (`schema`, and the lengths of the two parts), the index (zlib of JSON), the parts of all
processes one behind the other. `digesting` writes it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..errors import PerfdoctorError
from .model import ABSENT, COLUMNS, Columns, Ints
from .packing import Packed, unpack

SCHEMA = "perfdoctor.digest/1"
Role = Literal["rank", "worker", "helper"]
STEPS = ("step", "boundary", "marked", "end_ns")
"""What the rows of steps have besides the columns of a recording."""
COMPARED = ("steps", "batches")
"""The columns that all ranks are compared by."""
_RECENT = 16
"""Columns that are kept: those of one rank are asked for again and again, one rank after the other."""
_MOST_BYTES = 1 << 28
"""Of the index, or of the records of one process: more was not written by us, and would fill the memory."""


@dataclass(frozen=True, slots=True)
class DigestFile:
    path: Path
    start: int
    """Of the parts."""

    def part(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start + offset)
            return file.read(length)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One process in a digest."""

    file: DigestFile
    name: str
    """Of its own file in the run directory."""
    role: Role
    pid: int
    parent: int
    """Of a data-loader worker: the process that loads by it; else 0."""
    world_size: int
    """Ranks of the job."""
    size_bytes: int
    """Of its own file."""
    problems: tuple[str, ...]
    left_out: Mapping[str, int]
    _index: Mapping[str, Any]

    def records(self, *, whole: bool) -> Iterator[dict[str, Any]]:
        """All but columns; or only those that ranks are compared by."""
        text = _inflated(self.file.part(*self._index["all" if whole else "brief"]), self.file.path)
        yield from map(json.loads, text.splitlines())
        for table in self._index["tables"] if whole else ():
            yield from self._table(table)

    def _table(self, table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Records of one kind that have the same fields."""
        fields = {
            name: value if isinstance(value[0], list) else [self._column(value).tolist()]
            for name, value in table["fields"].items()
        }
        for values in zip(*(column for (column,) in fields.values()), strict=True):
            yield {"k": table["kind"], **dict(zip(fields, values, strict=True))}

    def columns(self, *, whole: bool) -> dict[str, Columns]:
        """By kind; those that are not asked for are empty."""
        wanted = COLUMNS if whole else COMPARED
        return {
            kind: Columns(_Stored(self, kind, self._index["columns"].get(kind, {}) if kind in wanted else {}))
            for kind in COLUMNS
        }

    def _column(self, head: Sequence[int | None]) -> Ints:
        """Raises PerfdoctorError where it is damaged."""
        *fields, offset, length = head
        packed = Packed(*fields)  # type: ignore[arg-type]
        try:
            return unpack(replace(packed, planes=self.file.part(offset or 0, length)) if length else packed)
        except (ValueError, zlib.error, OSError) as error:
            raise _damaged(self.file.path, str(error)) from error


class _Stored(Mapping[str, Ints]):
    """Columns of a process, each read when it is asked for: those of thousands of ranks do not fit into memory."""

    def __init__(self, entry: Entry, kind: str, heads: Mapping[str, Sequence[int | None]]) -> None:
        self._entry = entry
        self._kind = kind
        self._names = (*STEPS, *COLUMNS[kind]) if kind == "steps" else COLUMNS[kind]
        self._heads = heads

    def __getitem__(self, name: str) -> Ints:
        if name not in self._names:
            raise KeyError(name)
        if name in self._heads:
            return _read(self._entry, self._kind, name)
        rows = next((head[0] for head in self._heads.values()), None)
        return np.full(rows or 0, ABSENT.get(name, 0), np.int64)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@lru_cache(_RECENT)
def _read(entry: Entry, kind: str, name: str) -> Ints:
    column = entry._column(entry._index["columns"][kind][name])
    if name == "end_ns":
        # When a step ended: what lies between two ends beside the step's length is next to nothing.
        column = np.cumsum(column + 1000 * _read(entry, kind, "wall_us"))
    column.setflags(write=False)
    return column


class Digest:
    """The digest of a node."""

    def __init__(self, path: Path) -> None:
        """Reads the index. Raises PerfdoctorError where it is none, or damaged, or another version's."""
        try:
            with path.open("rb") as opened:
                head = json.loads(opened.readline(1000))
                if head["schema"] != SCHEMA:
                    raise _damaged(path, f"its format is {head['schema']!r}, and this perfdoctor reads {SCHEMA!r}")
                index = opened.read(head["index"])
                start = opened.tell()
                if path.stat().st_size != start + head["parts"]:
                    raise _damaged(path, "its end is missing")
            file = DigestFile(path, start)
            processes = json.loads(_inflated(index, path))["processes"]
            self.entries = [_entry(file, process) for process in processes]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, str(error)) from error


def _entry(file: DigestFile, index: Mapping[str, Any]) -> Entry:
    if index["role"] not in get_args(Role):
        raise ValueError(f"{index['role']!r} is no role")
    return Entry(
        file=file,
        name=index["name"],
        role=index["role"],
        pid=index["pid"],
        parent=index["parent"],
        world_size=index["world_size"],
        size_bytes=index["size_bytes"],
        problems=tuple(index["problems"]),
        left_out=index["left_out"],
        _index=index,
    )


def _inflated(data: bytes, path: Path) -> bytes:
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise _damaged(path, str(error)) from error
    if not inflater.eof:
        raise _damaged(path, "a part of it is cut")
    return text


def _damaged(path: Path, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"{path.name} cannot be read: {why}",
        slug="damaged-digest",
        advice="take it away, and make it again with `perfdoctor digest RUN` from the recordings of its node",
    )
