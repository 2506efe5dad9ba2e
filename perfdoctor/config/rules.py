"""`[rules.PD03]`: the level of one check's findings, and its thresholds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ..errors import PerfdoctorError
from .decoding import FORMS, SCALAR, TABLE, Place, one_of, reject_unknown, unfit

if TYPE_CHECKING:
    # Types only: `diagnosis` imports this package, and the command line must start fast.
    from ..diagnosis.findings import Check

Level = Literal["error", "warning", "note", "off"]
LimitValue = bool | int | float | str
"""What a threshold can be."""

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Rule:
    """The table of one check."""

    code: str
    level: Level | None = None
    """The severity of all its findings, or "off"; None keeps the measured one."""
    limits: Mapping[str, LimitValue] = field(default_factory=dict)
    """Thresholds by kebab name, for `apply_limits`."""
    key: str = field(default="", compare=False)
    """The check as the file names it, if not by its code."""


def read_rules(table: object, place: Place) -> tuple[Rule, ...]:
    """`[rules]`. Raises PerfdoctorError."""
    found = []
    for code, value in TABLE.decode(table, place).items():
        there = place.at(code)
        values = TABLE.decode(value, there)
        level = one_of(Level).decode(values["level"], there.at("level")) if "level" in values else None
        limits = {key: SCALAR.decode(value, there.at(key)) for key, value in values.items() if key != "level"}
        found.append(Rule(code, level, limits))
    return tuple(found)


def apply_limits(check: Check[L], rule: Rule, source: Path | None) -> L:
    """The check's thresholds with those of its rule over them. Raises PerfdoctorError for a wrong name or type."""
    limits = cast("Any", check.limits)  # a frozen dataclass, which a type variable cannot say
    names = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(limits)}
    place = Place(source, f"rules.{rule.key or check.code}")
    reject_unknown(rule.limits, (*names, "level"), place)
    changes = {
        names[key]: _like(getattr(limits, names[key]), value, place.at(key)) for key, value in rule.limits.items()
    }
    try:
        return cast("L", dataclasses.replace(limits, **changes))
    except ValueError as error:
        raise PerfdoctorError(
            f"{place}: {error}",
            slug="config-bad-threshold",
            advice=f"`perfdoctor explain {check.code}` says what each threshold means.",
        ) from error


def _like(default: object, value: LimitValue, place: Place) -> object:
    """A value of the type of `default`."""
    if not isinstance(default, bool | int | float | str):
        raise unfit(value, "nothing, because it cannot be set in a file", place)
    return FORMS[type(default)].decode(value, place)
