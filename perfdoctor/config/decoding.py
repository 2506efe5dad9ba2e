"""From a table of settings to the dataclass that declares them, by cattrs. A mistake names file, key and what belongs
there: a misspelled threshold that is passed over looks like one that is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date, datetime
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin

from cattrs import Converter
from cattrs.errors import ClassValidationError
from cattrs.gen import make_dict_structure_fn, override

from ..errors import PerfdoctorError, did_you_mean

T = TypeVar("T")

NO_KEY = "-"
"""The key of a field that is not read from a table as it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written."""

    source: Path | None = None
    """The file; None for the command line."""
    key: str = ""
    """`rules.PD03.min-share`, `suppress[1].code`; an option without its hyphens."""

    def at(self, key: str) -> Place:
        """A key of the table that is here."""
        return Place(self.source, f"{self.key}.{key}" if self.key else key)

    def __str__(self) -> str:
        return f"`{self.key}` in {self.source}" if self.source else f"`--{self.key}`"


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """What a value has to look like."""

    expected: str
    """In words; `{key}` stands for its key."""
    parse: Callable[[Any], T | None]
    """The value as it is meant; None when it does not fit."""

    def structure(self, value: object, _: object = None) -> T:
        """For cattrs."""
        parsed = self.parse(value)
        if parsed is None:
            raise _UnfitError(self.expected)
        return parsed

    def decode(self, value: object, place: Place) -> T:
        """Raises PerfdoctorError for a value that does not fit."""
        parsed = self.parse(value)
        if parsed is None:
            raise unfit(value, self.expected, place)
        return parsed


class _UnfitError(ValueError):
    """A value that does not have the form that is its argument."""


def setting(default: T, form: Form[Any] | None = None, key: str = "") -> T:
    """A field: its default, its form where the type does not say enough, and its key where that is not its name."""
    found: T = field(default=default, metadata={"form": form, "key": key})
    return found


def required(why: str) -> Any:
    """A field that has to be set; `why` is the advice where it is not."""
    return field(metadata={"why": why})


def keys(section: Any) -> dict[str, str]:
    """The keys of a section -> the fields that they set."""
    found = {one.metadata.get("key") or one.name.replace("_", "-"): one.name for one in fields(section)}
    return {key: name for key, name in found.items() if key != NO_KEY}


def decode(section: type[T], value: object, place: Place) -> T:
    """A table as a section. Raises PerfdoctorError for what is not as declared there."""
    table, names = TABLE.decode(value, place), keys(section)
    reject_unknown(table, names, place)
    try:
        return _CONVERTER.structure({names[key]: value for key, value in table.items()}, section)
    except ClassValidationError as error:
        cause, note = error.group_exceptions()[0][0]
    key = next(key for key, name in names.items() if name == note.name)
    if isinstance(cause, KeyError):
        why = next(one.metadata["why"] for one in fields(cast("Any", section)) if one.name == note.name)
        raise PerfdoctorError(f"{place.at(key)} is missing", slug="config-missing-key", advice=why)
    if not isinstance(cause, _UnfitError):
        raise cause
    raise unfit(table[key], str(cause), place.at(key))


def laid_over(settings: T, options: Mapping[str, object]) -> T:
    """The settings with those options of the command line over them that are not None. Raises PerfdoctorError."""
    given = {key: value for key, value in options.items() if value is not None}
    names, decoded = keys(settings), decode(type(settings), given, Place())
    return cast("T", replace(cast("Any", settings), **{names[key]: getattr(decoded, names[key]) for key in given}))


def reject_unknown(table: Iterable[str], valid: Iterable[str], place: Place) -> None:
    """Raises PerfdoctorError for the first key of the table that is not valid."""
    names = list(valid)
    for key in table:
        if key not in names:
            raise PerfdoctorError(
                f"{place.at(key)} is not a setting{did_you_mean(key, names)}",
                slug="config-unknown-key",
                advice=f"Correct or remove it. There are: {', '.join(names)}.",
            )


def unfit(value: object, expected: str, place: Place) -> PerfdoctorError:
    """The error for a value that is not what it should be."""
    found = f"{place} is {_described(value)}" if place.source else f"invalid --{place.key}: {value}"
    return PerfdoctorError(
        f"{found}; expected {expected.replace('{key}', place.key)}",
        slug="config-wrong-value",
        advice="Correct the value, or leave it out to use the default.",
    )


def _described(value: object) -> str:
    """A value with its kind, as TOML calls it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a whole number of many digits"
    kinds = {str: 'the string "{}"', int: "the whole number {}", float: "the number {}", list: "a list"}
    kinds |= {datetime: "the date and time {}", date: "the date {}"}
    return "an empty string" if value == "" else kinds.get(type(value), "a table").format(value)


def finite(value: object) -> float | None:
    """A number as a float; None for what is none, or not finite."""
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(cast("float", value)) if is_number else None
    except OverflowError:  # a whole number beyond any float
        return None


def positive(value: object) -> float | None:
    """A finite number above 0; None for anything else."""
    number = finite(value)
    return number if number is not None and number > 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _all_are(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


COUNT = Form("a whole number, 1 or more", lambda value: value if type(value) is int and value >= 1 else None)
POSITIVE = Form("a number above 0", positive)
TABLE: Form[dict[str, Any]] = Form("a table, [{key}]", lambda value: value if isinstance(value, dict) else None)
TABLES: Form[list[Any]] = Form(
    "an array of tables, each headed [[{key}]]", lambda value: value if _all_are(dict, value) else None
)
SCALAR: Form[bool | int | float | str] = Form(
    "a number, a string, or true or false", lambda value: value if isinstance(value, bool | int | float | str) else None
)
FORMS: dict[Any, Form[Any]] = {
    bool: Form("true or false", lambda value: value if isinstance(value, bool) else None),
    int: Form("a whole number", lambda value: value if type(value) is int else None),
    float: Form("a number", finite),
    str: Form("a string that is not empty", _text),
    Path: Form("a string that is not empty", lambda value: Path(text) if (text := _text(value)) else None),
    date: Form("a date without quotes, such as 2030-12-31", lambda value: value if type(value) is date else None),
    tuple[str, ...]: Form(
        'a list of strings, such as ["PD03"]', lambda value: tuple(value) if _all_are(str, value) else None
    ),
}
"""By type, where a field says no more."""


def one_of(choice: Any) -> Form[Any]:
    """The words of a `Literal`."""
    words = get_args(choice)
    return Form(" or ".join(f'"{word}"' for word in words), lambda value: value if value in words else None)


def _is_choice(kind: Any) -> bool:
    return bool(get_origin(kind) == Literal)


def _converter() -> Converter:
    made = Converter()
    for kind, form in FORMS.items():
        if get_origin(kind):
            made.register_structure_hook_func(partial(eq, kind), form.structure)
        else:
            made.register_structure_hook(kind, form.structure)
    made.register_structure_hook_factory(_is_choice, lambda kind: one_of(kind).structure)
    made.register_structure_hook_factory(is_dataclass, _section)
    return made


def _section(kind: Any, converter: Converter) -> Any:
    forms = {one.name: one.metadata.get("form") for one in fields(kind)}
    hooks = {name: override(struct_hook=form.structure) for name, form in forms.items() if form}
    # A type checker cannot tell the fields from cattrs' own options beside them.
    return cast("Any", make_dict_structure_fn)(kind, converter, **hooks)


_CONVERTER = _converter()
