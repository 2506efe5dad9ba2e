"""`[rules.PD03]`: the level of one check's findings, and its thresholds. `[assert]`: budgets, on a metric or on what a
check may find."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from ..errors import PerfdoctorError
from .decoding import FORMS, NO_KEY, SCALAR, TABLE, Place, decode, one_of, reject_unknown, setting, unfit

if TYPE_CHECKING:
    # Types only: `diagnosis` imports this package, and the command line must start fast.
    from ..diagnosis.outcomes import Check

Level = Literal["error", "warning", "note", "off"]
LimitValue = bool | int | float | str
"""What a threshold can be."""

BudgetLevel = Literal["off", "warn", "error"]
EXPECTED = '"error" for a check, or ["error", { max = 0.1 }] for a metric; the levels are off, warn and error'

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


@dataclass(frozen=True, slots=True)
class Budget:
    """One entry of `[assert]`."""

    name: str = setting("", key=NO_KEY)
    level: BudgetLevel = setting("error", key=NO_KEY)
    max: float | None = None
    min: float | None = None

    @property
    def is_check(self) -> bool:
        """Whether it is on what a check finds: nothing."""
        return self.max is None and self.min is None


def read_budgets(table: object, place: Place) -> tuple[Budget, ...]:
    """`PD04 = "error"` or `data_wait_share = ["error", { max = 0.10 }]`. Raises PerfdoctorError."""
    return tuple(_budget(name, value, place.at(name)) for name, value in TABLE.decode(table, place).items())


def _budget(name: str, value: Any, place: Place) -> Budget:
    entries = value if isinstance(value, list) else [value]
    if not 1 <= len(entries) <= 2 or entries[0] not in get_args(BudgetLevel):
        raise unfit(value, EXPECTED, place)
    limits = decode(Budget, entries[1], place) if len(entries) == 2 else Budget()
    return dataclasses.replace(limits, name=name, level=entries[0])
