"""One event of a trace in Chrome's format, as it is written; and how damaged ones are read nevertheless.

Blocks of text are decoded by msgspec into structs that hold the fields wanted here and nothing else. What it refuses is
washed (control characters, bytes that are no UTF-8, `NaN`) and tried again; then event by event, at last with Python's
own `json`, which is slow and takes more.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

_NOTHING = msgspec.Raw()


class Arguments(msgspec.Struct, gc=False, rename={
    "external": "External id",
    "external_in_old_schema": "external id",
    "sequence": "Sequence number",
    "dims": "Input Dims",
    "types": "Input type",
    "stack": "Call stack",
    "collective": "Collective name",
    "elements": "In msg nelems",
}):  # fmt: skip
    """What an event says besides; numbers are checked where they are used."""

    external: Any = None
    external_in_old_schema: Any = None
    sequence: Any = None
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    collective: Any = None
    elements: Any = None
    dims: msgspec.Raw = _NOTHING
    types: msgspec.Raw = _NOTHING
    stack: msgspec.Raw = _NOTHING
    """Texts that repeat, so that each is decoded once."""


class Event(msgspec.Struct, gc=False):
    """Times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float | None = None
    dur: float | None = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: Arguments | None = None


class File(msgspec.Struct):
    """A trace's outermost object."""

    traceEvents: list[Event] = []  # noqa: N815
    deviceProperties: Any = None  # noqa: N815
    distributedInfo: Any = None  # noqa: N815
    with_stack: Any = None
    record_shapes: Any = None


Refused = (ValueError, RecursionError)
"""What decoding raises; msgspec's errors and Unicode's are of the first kind."""

_events = msgspec.json.Decoder(list[Event])
_file = msgspec.json.Decoder(File)

_CONTROL = bytes.maketrans(bytes(range(32)), b" " * 32)
"""Outside of strings they are white space anyway."""
_NO_NUMBER = re.compile(rb"([:,\[]\s*)[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
"""As C++ prints them; `memory bandwidth (GB/s)` is `inf` where a copy took no time."""
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half a character: no Python can print it. Whole pairs are as rare, and go with them."""
_ESCAPE = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
"""Paths of Windows have been written as they are: `C:\\Users`."""
_BETWEEN = re.compile(rb"(?<=\})\s*,\s*(?=\{)")
"""Events, or objects in a list within one."""
_END = re.compile(rb"(?<=\})\s*,?\s*\](?=\s*(?:\}|,\s*\"|\Z))")
"""Of the list of events, or of a list of objects within one; some writers leave a comma before it."""
_MOST_JOINED = 8
"""Pieces of text put together again where an event holds a list of objects; the profiler writes none."""


def decode(text: bytes) -> list[Event]:
    """Events with `,` between them. Raises what `Refused` names."""
    return _events.decode(b"[%b]" % text)


def decode_file(text: bytes) -> File:
    """Raises what `Refused` names."""
    try:
        return _file.decode(text)
    except Refused:
        return _file.decode(washed(text))


def washed(text: bytes) -> bytes:
    """The same events, without what JSON does not allow but profilers have written."""
    text = _LONE_SURROGATE.sub(b"?", text.translate(_CONTROL))
    text = _NO_NUMBER.sub(rb"\1null", text)
    text = _ESCAPE.sub(lambda escape: escape[0] if escape[1] else rb"\\", text)
    return text.decode("utf-8", "replace").encode()


def last_separator(text: bytes) -> tuple[int, int]:
    """Where the last comma between two objects is: ends of the one and start of the other; (0, 0) where none is."""
    stop = len(text)
    while (brace := text.rfind(b"{", 0, stop)) > 0:
        before = text[max(0, brace - 200) : brace].rstrip()
        if before.endswith(b",") and (left := before[:-1].rstrip()).endswith(b"}"):
            return max(0, brace - 200) + len(left), brace
        stop = brace
    return 0, 0


def salvage(text: bytes) -> tuple[list[Event], int, int]:
    """Reads damaged text event by event: those that can be read, how many cannot, and where the list of events ends
    (-1 where it does not; then the last piece is taken as cut, and not counted)."""
    between = list(_BETWEEN.finditer(text))
    starts = [0, *(match.end() for match in between)]
    ends = [*(match.start() for match in between), len(text)]
    events: list[Event] = []
    unread = number = 0
    while number < len(starts):
        last = number
        for joined in range(number, min(number + _MOST_JOINED, len(starts))):
            piece = text[starts[number] : ends[joined]]
            if (event := _one(piece)) is not None:
                events.append(event)
                last = joined
                break
            for closing in _END.finditer(piece):
                if (event := _one(piece[: closing.start()])) is not None:
                    return [*events, event], unread, starts[number] + closing.end()
            if piece.count(b"{") <= piece.count(b"}") or joined == number + _MOST_JOINED - 1:
                unread += 1
                break
        number = last + 1
    return events, unread, -1


def _one(text: bytes) -> Event | None:
    """An event by all means; None where there is none."""
    if not text.strip().startswith(b"{"):
        return None
    for attempt in (text, washed(text)):
        try:
            return decode(attempt)[0]
        except (*Refused, IndexError):
            continue
    try:
        fields = json.loads(washed(text), strict=False)
        return _event(fields) if isinstance(fields, dict) else None
    except Refused:
        return None


def _event(fields: dict[str, Any]) -> Event:
    """With fields of other types than the profiler writes: times as text, arguments that are none."""
    arguments = fields.get("args")
    cleaned = {
        **{name: str(fields.get(name, "")) for name in ("ph", "cat", "name")},
        **{name: _number(fields.get(name)) for name in ("ts", "dur")},
        **{name: fields.get(name) for name in ("pid", "tid", "id")},
        "args": arguments if isinstance(arguments, dict) else None,
    }
    return _events.decode(json.dumps([cleaned]))[0]


def _number(value: object) -> float | None:
    if isinstance(value, str | int | float):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None
