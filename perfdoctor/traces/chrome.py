"""Events of Chrome's format as rows of the tables, in both schemas of torch.profiler and for all its devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

from .columns import Row, TableName, Tables, shapes_text
from .events import Arguments, Event
from .model import NOT_SAID, Kind

_LARGEST = (1 << 63) - 1
_NO_ARGUMENTS = Arguments()
_ANNOTATIONS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#")
"""Of the profiler itself, which the old schema has among the operators."""
_UNUSED = ("gpu_user_annotation", "overhead", "cuda_sync")
"""The profiler's too: annotations once more on the device, its own work, synchronisations that calls tell as well."""
_TYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
"""As C++ names them."""
_EIGHT_BITS = "c10::Float8_"

Meaning = Literal["operator", "old operator", "call", "kernel", "copy", "set", "mark", "frame", "window", ""]
_KINDS: dict[Meaning, Kind] = {"kernel": Kind.KERNEL, "copy": Kind.COPY, "set": Kind.SET}


@lru_cache(maxsize=1000)
def _meaning(category: str) -> Meaning:
    """Of a category in either schema: `Kernel`, `kernel`, `privateuse1_kernel`, `concurrent_kernel`."""
    said = category.lower()
    exact: dict[str, Meaning] = {
        "cpu_op": "operator",
        "operator": "old operator",
        "user_annotation": "mark",
        "python_function": "frame",
        "trace": "window",
        "hpu_op": "kernel",
        "mtia_ccp_events": "kernel",
    }
    if said in exact:
        return exact[said]
    if said.endswith(("runtime", "driver")):
        return "call"
    if "memcpy" in said:
        return "copy"
    if "memset" in said:
        return "set"
    return "kernel" if said.endswith("kernel") else ""


class ChromeEvents:
    """Sorts events into tables."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.left_out: Counter[str] = Counter()
        """Events by what is wrong with them."""
        self.foreign = 0
        """Events that last and are not torch.profiler's."""
        self.has_shapes = False
        self._threads: dict[str, int] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Raises nothing, whatever the events say."""
        rows: dict[TableName, list[Row]] = {}
        operators = rows.setdefault("operators", [])
        calls = rows.setdefault("calls", [])
        work = rows.setdefault("work", [])
        marks = rows.setdefault("marks", [])
        frames = rows.setdefault("frames", [])
        name_index = self.tables.names.index
        for event in events:
            if event.ph != "X":
                if event.ph in ("s", "f", "t") and event.cat != "fwdbwd":
                    self._add_flow(event, rows)
                self.foreign += event.ph == "B"
                continue
            meaning = _meaning(event.cat)
            if not meaning:
                self.foreign += event.cat not in _UNUSED
                continue
            start, length = event.ts, event.dur
            if start is None or length is None or not isfinite(start + length):
                self.left_out["without a time or a length"] += 1
                continue
            if length < 0:
                self.left_out["of negative length"] += 1
                continue
            end = start + length
            if meaning == "frame":
                frames.append((start, end, name_index(event.name), self._thread(event.tid)))
                continue
            said = event.args or _NO_ARGUMENTS
            if meaning in ("operator", "old operator"):
                if _is_annotation(meaning, event.name, said):
                    marks.append((start, end, name_index(event.name), self._thread(event.tid), self._stack(said)))
                else:
                    operators.append((start, end, name_index(event.name), *self._operator(event, said)))
            elif meaning == "call":
                thread = self._thread(event.tid)
                calls.append((start, end, name_index(event.name), thread, _whole(said.correlation), _external(said)))
            elif meaning == "mark":
                marks.append((start, end, name_index(event.name), self._thread(event.tid), self._stack(said)))
            elif meaning == "window":
                rows.setdefault("windows", []).append((start, end))
            else:
                work.append((start, end, name_index(event.name), *self._work(_KINDS[meaning], event, said)))
        for table, found in rows.items():
            self.tables.extend(table, found)

    def _operator(self, event: Event, said: Arguments) -> Row:
        names = self.tables.names
        shapes = dtype = NOT_SAID
        if said.dims:
            self.has_shapes = True
            shapes = names.index_of_json(said.dims, shapes_text)
        if said.types:
            dtype = names.index_of_json(said.types, _dtype)
        return self._thread(event.tid), _external(said), _whole(said.sequence), dtype, shapes, self._stack(said)

    def _stack(self, said: Arguments) -> int:
        return self.tables.names.index_of_json(said.stack, str) if said.stack else NOT_SAID

    def _work(self, kind: Kind, event: Event, said: Arguments) -> Row:
        collective = NOT_SAID
        if type(said.collective) is str:
            collective = self.tables.names.index(said.collective)
        return (
            kind.value,
            self._thread(event.pid if said.device is None else said.device),
            self._thread(event.tid if said.stream is None else said.stream),
            _whole(said.correlation),
            _external(said),
            _whole(said.bytes),
            collective,
            _whole(said.elements),
        )

    def _add_flow(self, event: Event, rows: dict[TableName, list[Row]]) -> None:
        flow = _whole(event.id)
        if event.ts is None or flow == NOT_SAID or not isfinite(event.ts):
            return
        if event.ph == "s":
            rows.setdefault("departures", []).append((event.ts, flow, self._thread(event.tid)))
        else:
            where = self._thread(event.pid), self._thread(event.tid)
            rows.setdefault("arrivals", []).append((event.ts, flow, *where))

    def _thread(self, said: Any) -> int:
        """A thread, device or stream as a number: `7`, `"7"`, `"stream 7"`; others get numbers below zero."""
        if type(said) is int and -1 <= said <= _LARGEST:
            return said
        text = str(said)
        last = text.rpartition(" ")[2]
        if last.isdecimal() and len(last) < 19 and text in (last, f"stream {last}"):
            return int(last)
        return self._threads.setdefault(text[:100], -2 - len(self._threads))


def _is_annotation(meaning: Meaning, name: str, said: Arguments) -> bool:
    """Whether a span among the operators is the profiler's own or the user's: those have no inputs."""
    if name.startswith(_ANNOTATIONS):
        return True
    return (
        meaning == "old operator"
        and "::" not in name
        and "Backward" not in name
        and not said.dims
        and said.sequence is None
    )


def _whole(said: Any) -> int:
    """A whole number; `NOT_SAID` for what is none, or has more than 64 bits."""
    if type(said) is int and -_LARGEST <= said <= _LARGEST:
        return said
    if type(said) is str and said.isdecimal() and len(said) < 19:
        return int(said)
    return NOT_SAID


def _external(said: Arguments) -> int:
    return _whole(said.external if said.external is not None else said.external_in_old_schema)


def _dtype(types: Any) -> str:
    """Of the first floating-point input."""
    for said in types if isinstance(types, list) else ():
        if isinstance(said, str):
            if said in _TYPES:
                return _TYPES[said]
            if said.startswith(_EIGHT_BITS):
                return said.removeprefix("c10::").lower()
    return ""
