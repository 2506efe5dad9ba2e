"""A table of settings, read key by key: every value comes out with the type asked for, or as an error that helps.

Command-line options are read through one as well, so that a range is checked and worded in one place.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from ..errors import PerfdoctorError

LimitValue = bool | int | float | str
"""What a threshold can be."""
WORTH_SUGGESTING = 0.5
"""difflib's ratio below which two words have little in common; its own default of 0.6 misses `expiry`, `expires`."""


@dataclass(frozen=True, slots=True)
class Table:
    """Raw values and where they come from. Every method raises PerfdoctorError for a value of the wrong kind."""

    values: Mapping[str, object]
    source: Path | None
    """The file; None for the command line."""
    prefix: str = ""
    """What stands before a key in messages: `rules.PD03.`, `--`."""

    @property
    def place(self) -> str:
        """` in perfdoctor.toml`; nothing for the command line, where the option says it."""
        return f" in {self.source}" if self.source else ""

    def named(self, key: str) -> str:
        """The key as a message shows it."""
        return f"`{self.prefix}{key}`{self.place}"

    def reject_unknown(self, valid: Iterable[str]) -> None:
        """Raises PerfdoctorError for a key that means nothing."""
        keys = list(valid)
        for key in self.values:
            if key not in keys:
                raise PerfdoctorError(
                    f"{self.named(key)} is not a setting{nearest(key, keys)}",
                    slug="config-unknown-key",
                    advice=f"Correct or remove it. There are: {', '.join(keys)}.",
                )

    def text(self, key: str, default: str) -> str:
        """A string that is not empty."""
        value = self.values.get(key)
        if key not in self.values:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        if not value.strip():
            raise self.wrong(key, "a string that is not empty")
        return value

    def required_text(self, key: str, why: str) -> str:
        """A string that has to be there; `why` is the advice when it is not."""
        if key not in self.values:
            raise PerfdoctorError(f"{self.named(key)} is missing", slug="config-missing-key", advice=why)
        return self.text(key, "")

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of strings."""
        value = self.values.get(key)
        if key not in self.values:
            return default
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, 'a list of strings, such as ["PD03"]')
        return tuple(value)

    def whole(self, key: str, default: int) -> int:
        """A whole number, 1 or more."""
        value = self.values.get(key)
        if key not in self.values:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, "a whole number, 1 or more")
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number above 0."""
        if key not in self.values:
            return default
        value = _finite(self.values[key])
        if value is None or value <= 0:
            raise self.wrong(key, "a number above 0")
        return value

    def choice(self, key: str, options: tuple[str, ...]) -> str | None:
        """One of a few words; None when it is not set."""
        value = self.values.get(key)
        if key not in self.values:
            return None
        if not isinstance(value, str) or value not in options:
            raise self.wrong(key, " or ".join(f'"{option}"' for option in options))
        return value

    def day(self, key: str) -> date | None:
        """A date without a time; None when it is not set."""
        value = self.values.get(key)
        if key not in self.values:
            return None
        if not isinstance(value, date) or isinstance(value, datetime):
            raise self.wrong(key, "a date without quotes, such as 2030-12-31")
        return value

    def scalar(self, key: str) -> LimitValue:
        """A number, a string, or true or false."""
        value = self.values[key]
        if not isinstance(value, bool | int | float | str):
            raise self.wrong(key, "a number, a string, or true or false")
        return value

    def like(self, key: str, default: object) -> LimitValue:
        """A value of the type of `default`; a whole number will do where that is a float."""
        value = self.values[key]
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise self.wrong(key, "true or false")
            return value
        if isinstance(default, int):
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.wrong(key, "a whole number")
            return value
        if isinstance(default, float):
            number = _finite(value)
            if number is None:
                raise self.wrong(key, "a number")
            return number
        if isinstance(default, str):
            return self.text(key, "")
        raise self.wrong(key, "nothing, because it cannot be set in a file")

    def table(self, key: str) -> Table:
        """The table under a key; an empty one when there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"a table, [{self.prefix}{key}]")
        return Table(value, self.source, f"{self.prefix}{key}.")

    def tables(self, key: str) -> tuple[Table, ...]:
        """The tables of an array, in the order of the file; their keys are shown as `key[1].name`."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, f"an array of tables, each headed [[{self.prefix}{key}]]")
        return tuple(Table(item, self.source, f"{self.prefix}{key}[{n}].") for n, item in enumerate(value, 1))

    def wrong(self, key: str, expected: str) -> PerfdoctorError:
        """The error for a value that is not what it should be."""
        return PerfdoctorError(
            f"{self.named(key)} is {_described(self.values.get(key))}; expected {expected}",
            slug="config-wrong-value",
            advice="Correct the value, or leave it out to use the default.",
        )


def nearest(word: str, valid: Iterable[str]) -> str:
    """`; the nearest is "steps"`, whatever the case and the hyphens; "" when nothing comes near."""
    said = word.lower().replace("_", "-")
    # Not get_close_matches(), which takes the last of equals: PD3 is nearer to PD03 than to PD13.
    likeness = {option: difflib.SequenceMatcher(None, said, option.lower()).ratio() for option in valid}
    best = max(likeness, key=lambda option: likeness[option], default="")
    return f"; the nearest is `{best}`" if best and likeness[best] >= WORTH_SUGGESTING else ""


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond any float
        return None


def _described(value: object) -> str:
    """A value with its kind, as TOML calls it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the string "{value}"' if value else "an empty string"
    if isinstance(value, int):
        return f"the whole number {value}" if abs(value) < 10**18 else "a whole number of many digits"
    if isinstance(value, float):
        return f"the number {value}"
    if isinstance(value, datetime):
        return f"the date and time {value}"
    if isinstance(value, date):
        return f"the date {value}"
    return "a list" if isinstance(value, list) else "a table"
