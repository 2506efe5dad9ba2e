"""Events as columns that grow: some 50 bytes an event, however long its text was."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from .model import NOT_SAID

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Makes every name one of its own: `<built-in method numel of Tensor object at 0x7fdc681d0910>`."""

Meaning = Callable[[Any], str]
Row = tuple[float | int, ...]
Columns = dict[str, npt.NDArray[Any]]
TableName = Literal["operators", "calls", "work", "marks", "frames", "windows", "departures", "arrivals"]

COLUMNS: dict[TableName, tuple[str, ...]] = {
    "operators": ("start_us", "end_us", "name", "thread", "external", "sequence", "dtype", "shapes", "stack"),
    "calls": ("start_us", "end_us", "name", "thread", "correlation", "external"),
    "work": (
        *("start_us", "end_us", "name", "kind", "device", "stream"),
        *("correlation", "external", "bytes", "collective", "elements"),
    ),
    "marks": ("start_us", "end_us", "name", "thread", "stack"),
    "frames": ("start_us", "end_us", "name", "thread"),
    # Spans of the profiler itself.
    "windows": ("start_us", "end_us"),
    # Arrows from calls to work, by which work is matched where it has no correlation.
    "departures": ("start_us", "flow", "thread"),
    "arrivals": ("start_us", "flow", "device", "stream"),
}
"""Of the tables that are collected, in the order of their rows' values."""


class Names:
    """Texts, each kept once."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._of_json: defaultdict[Meaning, dict[bytes, int]] = defaultdict(dict)

    def index(self, name: str) -> int:
        """The index of a text, as `Trace.names` will have it."""
        if " at 0x" in name:
            name = _ADDRESS.sub("", name)
        return self._indices.setdefault(name, len(self._indices))

    def index_of_json(self, text: msgspec.Raw | bytes, meaning: Meaning) -> int:
        """The index of what a JSON text means, decoded when it is first seen; `NOT_SAID` where that is nothing."""
        raw, known = bytes(text), self._of_json[meaning]
        index = known.get(raw)
        if index is None:
            try:
                said = meaning(msgspec.json.decode(raw)) if raw else ""
            except (ValueError, RecursionError):
                said = ""
            index = known[raw] = self.index(said) if said else NOT_SAID
        return index

    def all(self) -> tuple[str, ...]:
        return tuple(self._indices)


class Tables:
    """Rows of all tables, column by column."""

    def __init__(self) -> None:
        self.names = Names()
        self._columns: dict[TableName, dict[str, array[Any]]] = {
            table: {column: array("d" if column.endswith("_us") else "q") for column in columns}
            for table, columns in COLUMNS.items()
        }

    def extend(self, table: TableName, rows: Iterable[Row]) -> None:
        """Append rows, whose whole numbers have 64 bits."""
        for column, values in zip(self._columns[table].values(), zip(*rows, strict=True), strict=False):
            column.extend(values)

    def take(self, table: TableName) -> Columns:
        """The table's columns as arrays; the table is empty afterwards."""
        columns = self._columns.pop(table)
        return {name: np.frombuffer(values, values.typecode) for name, values in columns.items()}


def shapes_text(dims: Any) -> str:
    """`[[64, 256], [], [[2], [3]]]` is `[64, 256] [[2], [3]]`."""
    return " ".join(str(shape) for shape in dims if shape) if isinstance(dims, list) else ""
