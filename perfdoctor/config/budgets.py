"""`[assert]`: absolute budgets, on a metric or on what a check may find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from .decoding import TABLE, Place, decode, unfit

BudgetLevel = Literal["off", "warn", "error"]
EXPECTED = '"error" for a check, or ["error", { max = 0.1 }] for a metric; the levels are off, warn and error'


@dataclass(frozen=True, slots=True)
class Budget:
    """One entry of `[assert]`."""

    name: str
    level: BudgetLevel
    max: float | None = None
    min: float | None = None

    @property
    def is_check(self) -> bool:
        """Whether it is on what a check finds: nothing."""
        return self.max is None and self.min is None


@dataclass(frozen=True, slots=True)
class _Limits:
    max: float | None = None
    min: float | None = None


def read_budgets(table: object, place: Place) -> tuple[Budget, ...]:
    """`PD04 = "error"` or `data_wait_share = ["error", { max = 0.10 }]`. Raises PerfdoctorError."""
    return tuple(_budget(name, value, place.at(name)) for name, value in TABLE.decode(table, place).items())


def _budget(name: str, value: Any, place: Place) -> Budget:
    entries = value if isinstance(value, list) else [value]
    if not 1 <= len(entries) <= 2 or entries[0] not in get_args(BudgetLevel):
        raise unfit(value, EXPECTED, place)
    limits = decode(_Limits, entries[1], place) if len(entries) == 2 else _Limits()
    return Budget(name, entries[0], limits.max, limits.min)
