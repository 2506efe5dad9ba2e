"""Fields of a JSON object that somebody else wrote: each is what it should be, or absent."""

from __future__ import annotations

import json
from collections.abc import Mapping

Fields = Mapping[str, object]


def decode(line: bytes) -> Fields | None:
    """The JSON object in `line`, or None when it holds no whole one."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def objects(value: object) -> list[Fields]:
    """The objects of a JSON array; none when it is not one."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def integer(fields: Fields, name: str) -> int | None:
    """The field, or None when it is absent or of another type."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(fields: Fields, name: str) -> float | None:
    """The field, or None when it is absent or of another type."""
    value = fields.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text(fields: Fields, name: str, otherwise: str = "unknown") -> str:
    """The field, or `otherwise` when it is absent or of another type."""
    value = fields.get(name)
    return value if isinstance(value, str) else otherwise
