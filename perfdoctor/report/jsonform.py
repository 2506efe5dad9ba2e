"""How values are written as JSON, and the JSON Schema of what is written: both follow the fields of the dataclasses."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..diagnosis.findings import Finding, Measurement, Savings
from ..diagnosis.thresholds import field_docstrings
from ..evidence.model import DeviceTimeline, Job, JobAnatomy, Machine, Missing
from ..gate.model import GateResult

_Names = Mapping[type, tuple[str, ...]]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

DIGITS = 9
"""Significant digits of a float: far more than is measured, and the last bits of a sum stay out of diffs."""

_COMPUTED: _Names = {
    Finding: ("fingerprint",),
    Machine: ("usable_cpus",),
    DeviceTimeline: ("total_ms", "bound"),
    JobAnatomy: ("steady_share",),
}
"""Properties that are written like fields."""
_LEFT_OUT: _Names = {Job: ("end",), Savings: ("lanes", "general"), GateResult: ("fail_on_doubt",)}
"""How a job ended stands in another place; how findings share one saving is nobody else's business; the exit code says
what doubt comes to."""
_MAY_BE_NULL: _Names = {Measurement: ("value",)}
"""Numbers that need not be finite."""
_TABLE = tuple[tuple[str, str], ...]
"""Pairs of names and texts are written as an object, sorted."""
_SCALARS: dict[object, dict[str, Json]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
}
_MISSING: dict[str, Json] = {
    "type": "object",
    "description": "A quantity that this run did not see.",
    "required": ["missing", "remedy"],
    "properties": {
        "missing": {"type": "string", "description": "Why the run did not see it."},
        "remedy": {"type": "string", "description": "How to get it; may be empty."},
    },
}


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    kind: Any
    """Its type."""
    description: str


@cache
def _members(kind: type) -> tuple[_Member, ...]:
    """What of a dataclass is written, in order."""
    hints = get_type_hints(kind)
    said = {name: text for base in reversed(kind.__mro__[:-1]) for name, text in field_docstrings(base).items()}
    names = [f.name for f in fields(kind) if f.name not in _of(_LEFT_OUT, kind)]
    written = [_Member(name, hints[name], said.get(name, "")) for name in names]
    for name in _of(_COMPUTED, kind):
        getter = getattr(kind, name).fget
        text = (inspect.getdoc(getter) or "").partition("\n\n")[0]
        written.append(_Member(name, get_type_hints(getter)["return"], text))
    return tuple(written)


def _of(names: _Names, kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in names.get(base, ())]


def plain(value: object) -> Json:
    """A value as JSON: fields by name, Missing as its reason and remedy, no NaN and no infinity."""
    if isinstance(value, Missing):
        return {"missing": text(value.reason), "remedy": text(value.remedy)}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            member.name: plain(dict(sorted(found)) if member.kind == _TABLE else found)
            for member in _members(type(value))
            for found in (getattr(value, member.name),)
        }
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {text(str(name)): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool | int):
        return value
    raise TypeError(f"no JSON for {type(value).__name__}")


def text(value: str) -> str:
    """Lone surrogates, which undecodable file names bring, cannot be written as UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8")


def schema(kind: type) -> dict[str, Json]:
    """The JSON Schema (2020-12) of a dataclass and of all that it is made of, under `$defs`. All fields are written."""
    definitions: dict[str, Json] = {"Missing": _MISSING}
    return {**_object(kind, definitions), "$defs": definitions}


def _object(kind: type, definitions: dict[str, Json]) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    for member in _members(kind):
        shape = _shape(member.kind, definitions)
        if member.name in _of(_MAY_BE_NULL, kind):
            shape = {"anyOf": [shape, {"type": "null"}]}
        properties[member.name] = {
            **shape,
            **({"description": _for_json(member.description)} if member.description else {}),
        }
    return {
        "type": "object",
        "description": _for_json(" ".join((inspect.getdoc(kind) or "").split())),
        "required": list(properties),
        "properties": properties,
    }


def _for_json(description: str) -> str:
    return description.replace("None", "null")


def _shape(kind: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    """What a value of a type looks like; dataclasses are added to the definitions on the way."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    if kind == _TABLE or origin is Mapping:
        return {
            "type": "object",
            "additionalProperties": _SCALARS[str] if kind == _TABLE else _shape(arguments[1], definitions),
        }
    if origin in (Union, types.UnionType):
        return {"anyOf": [_shape(one, definitions) for one in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _shape(arguments[0], definitions)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_shape(one, definitions) for one in arguments], "items": False}
    if issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}
