"""From JSON straight into the types that declare what is recorded.

cattrs does it, because its hooks can be told what is special here: a site is a number in the file and a `Site` in the
type, and a quantity is a value or `Missing`. msgspec is faster, but allows neither, and the bulk of a recording is in
columns that no decoder touches.

Unknown fields are passed over and absent ones take their defaults, so that neighbouring versions read each other. What
has another type than the declared one is refused: nothing is converted from text to numbers.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from cattrs import Converter
from cattrs.errors import CattrsError

from .base import NO_LINE, Missing, Site

T = TypeVar("T")
Record = Mapping[str, Any]

Undecodable = (CattrsError, AttributeError, TypeError, ValueError, KeyError)
"""What `Decoder.decode` raises for a record that is not what its type declares."""


def parsed(text: str | bytes, *, strict: bool = True) -> Any:
    """JSON; not `strict`, with control characters in texts. Raises ValueError for what is none, and for what is nested
    deeper than whatever was written here: a recording may be anybody's."""
    try:
        return json.loads(text, strict=strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A place as the probe writes it once."""

    id: int
    file: str
    line: int
    function: str
    via: str = ""


@dataclass(slots=True)
class _Decoding:
    """Whose places count."""

    now: Decoder


class Decoder:
    """Decodes the records of one process, whose places in code are numbered."""

    def __init__(self, cwd: str = "", like: Decoder | None = None) -> None:
        """`cwd`: the job's working directory, which paths are made relative to. `like`: one for a process that has been
        read, whose functions, once made for each type in some 15 ms, serve this one too; both in one thread."""
        self.cwd = cwd
        self.sites: dict[int, Site] = {}
        self._decoding: _Decoding = _Decoding(self) if like is None else like._decoding
        self._converter: Converter = Converter(detailed_validation=False) if like is None else like._converter
        if like is not None:
            return
        for kind in (bool, int, str):
            self._converter.register_structure_hook(kind, _only(kind))
        self._converter.register_structure_hook(float, _number)
        self._converter.register_structure_hook_func(_may_be_missing, self._value_or_missing)
        self._converter.register_structure_hook_func(lambda kind: _is_union_with(kind, Site), self._place)
        self._converter.register_structure_hook(Site, self._certain)

    def decode(self, kind: type[T], record: object) -> T:
        """The record as `kind`. Raises one of `Undecodable`."""
        self._decoding.now = self
        return self._converter.structure(record, kind)

    def add_site(self, record: Record) -> None:
        """A place that later records name by its number. Raises one of `Undecodable`."""
        numbered = self.decode(_Numbered, record)
        file, _, function = numbered.via.rpartition(":")
        via = f"{_shortened(file)}:{function}" if file else ""
        self.sites[numbered.id] = Site(self._relative(numbered.file), numbered.line, numbered.function, via)

    def _relative(self, file: str) -> str:
        inside = self.cwd and file.startswith(self.cwd.rstrip("/") + "/")
        return os.path.relpath(file, self.cwd) if inside else file

    def _known(self, value: object) -> Site | None:
        if not isinstance(value, int):
            raise TypeError(f"{value!r} is no number of a place")
        return self._decoding.now.sites.get(value)

    def _certain(self, value: object, _: Any) -> Site:
        site = self._known(value)
        if site is None:
            raise ValueError(f"{value!r} is the number of no place")
        return site

    def _place(self, value: object, kind: Any) -> Site | Missing | None:
        """-1, or a number that was never written, is a stack without a line of the user's."""
        site = None if value is None else self._known(value)
        return site or (NO_LINE if Missing in get_args(kind) else None)

    def _value_or_missing(self, value: object, kind: Any) -> object:
        """`{"missing": "why"}` in a record's place says why there is none."""
        if isinstance(value, dict) and "missing" in value:
            return Missing(value["missing"], value.get("remedy", ""))
        others = (one for one in get_args(kind) if one is not Missing)
        return self._converter.structure(value, reduce(or_, others))


def _is_union_with(kind: Any, member: type) -> bool:
    return get_origin(kind) in (Union, UnionType) and member in get_args(kind)


def _may_be_missing(kind: Any) -> bool:
    return _is_union_with(kind, Missing) and Site not in get_args(kind)


def _only(kind: type) -> Any:
    def structure(value: object, _: Any) -> object:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return structure


def _number(value: object, _: Any) -> float:
    """What is not a number (nan, infinity) is written as null."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _shortened(file: str) -> str:
    """A library's file from its package name on."""
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in file:
            return file.rpartition(marker)[2]
    return file
