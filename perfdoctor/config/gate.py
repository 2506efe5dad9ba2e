"""The settings of the gate, `[gate]` and `[assert]`: types and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ..errors import PerfdoctorError
from .table import Table

Schedule = Literal["lockstep", "abba"]
Control = Literal["auto", "on", "off"]
OnInconclusive = Literal["fail", "warn"]
BudgetLevel = Literal["off", "warn", "error"]

GATE_KEYS = (
    "tolerance", "time-budget", "on-inconclusive", "schedule", "control", "steady-memory", "setup", "max-age",
    "counter-tolerance",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GateSettings:
    """`[gate]`."""

    tolerance: float = 0.05
    """Relative slowdown that fails."""
    time_budget_s: float = 600.0
    on_inconclusive: OnInconclusive = "fail"
    schedule: Schedule = "lockstep"
    control: Control = "auto"
    """Run a second copy of the side before as well, which has to pass against the first; `auto`: where the time and the
    memory are there."""
    steady_memory: Control = "auto"
    """Make glibc keep freed memory, on both sides; `auto`: where page faults would drown a slowdown in noise."""
    setup: str = ""
    """Shell command that prepares each side, in its own directory and virtual environment."""
    max_age_days: int = 14
    counter_tolerance: tuple[tuple[str, float], ...] = ()
    """Metric and how many more per step are allowed."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One entry of `[assert]`."""

    name: str
    level: BudgetLevel
    max: float | None = None
    min: float | None = None

    @property
    def is_check(self) -> bool:
        """Whether it promises that a check finds nothing."""
        return self.max is None and self.min is None


def read_gate(table: Table) -> GateSettings:
    """`[gate]`. Raises PerfdoctorError."""
    table.reject_unknown(GATE_KEYS)
    default = GateSettings()
    allowed = table.table("counter-tolerance")
    return GateSettings(
        _parsed(table, "tolerance", percent, default.tolerance),
        _parsed(table, "time-budget", duration_s, default.time_budget_s),
        cast("OnInconclusive", table.choice("on-inconclusive", get_args(OnInconclusive)) or default.on_inconclusive),
        cast("Schedule", table.choice("schedule", get_args(Schedule)) or default.schedule),
        _control(table, "control", default.control),
        _control(table, "steady-memory", default.steady_memory),
        table.text("setup", default.setup),
        table.whole("max-age", default.max_age_days),
        tuple((name, allowed.number(name, 0.0)) for name in allowed.values),
    )


def _parsed(table: Table, key: str, parse: Callable[[str], float | None], default: float) -> float:
    if key not in table.values:
        return default
    value = parse(str(table.values[key]))
    if value is None:
        raise table.wrong(key, '"5%" or 0.05' if parse is percent else '"10m", "90s" or seconds')
    return value


def _control(table: Table, key: str, default: Control) -> Control:
    value = control_of(table.values.get(key, default))
    if value is None:
        raise table.wrong(key, 'true, false or "auto"')
    return value


def control_of(value: object) -> Control | None:
    """`true`, `false` and `"auto"`; None for anything else."""
    if value == "auto":
        return "auto"
    return ("on" if value else "off") if isinstance(value, bool) else None


def percent(text: str) -> float | None:
    """`5%` and `0.05` are the same; None for anything that is not above 0 and at most 1."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    return value if 0 < value <= 1 else None


def duration_s(text: str) -> float | None:
    """`90`, `90s`, `10m`, `1h` in seconds; None for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(|s|m|h)\s*", text)
    value = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    return value if value > 0 else None


def read_budgets(table: Table) -> tuple[Budget, ...]:
    """`[assert]`: `PD04 = "error"` or `data_wait_share = ["error", { max = 0.10 }]`. Raises PerfdoctorError."""
    return tuple(_budget(table, name) for name in table.values)


def _budget(table: Table, name: str) -> Budget:
    value = table.values[name]
    entries = value if isinstance(value, list) else [value]
    expected = '"error" for a check, or ["error", { max = 0.1 }] for a metric; the levels are off, warn and error'
    if not 1 <= len(entries) <= 2 or entries[0] not in get_args(BudgetLevel):
        raise table.wrong(name, expected)
    limits = entries[1] if len(entries) == 2 else {}
    if not isinstance(limits, dict) or not set(limits) <= {"max", "min"}:
        raise table.wrong(name, expected)
    for limit in limits.values():
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise table.wrong(name, expected)
    looks_like_a_check = re.match(r"[A-Z]+\d", name) is not None
    if looks_like_a_check == bool(limits):
        raise PerfdoctorError(
            f"{table.named(name)} {'has limits, but is a check' if limits else 'has neither max nor min'}",
            slug="config-wrong-budget",
            advice=f"Write {expected}.",
        )
    return Budget(name, cast("BudgetLevel", entries[0]), limits.get("max"), limits.get("min"))
