"""`[gate]`: how `perfdoctor gate` compares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .choices import OnInconclusive, Schedule
from .decoding import COUNT, Form, finite, positive, setting

Control = Literal["auto", "on", "off"]


def share_of(value: object) -> float | None:
    """`5%`, `"0.05"` and `0.05` are the same; None for anything that is not above 0 and at most 1."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", _written(value))
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    return share if 0 < share <= 1 else None


def seconds_of(value: object) -> float | None:
    """`90`, `90s`, `10m`, `1h` in seconds; None for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(|s|m|h)\s*", _written(value))
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    return finite(seconds) if seconds > 0 else None


def _written(value: object) -> str:
    return "" if isinstance(value, bool | list | dict) else str(value)


def control_of(value: object) -> Control | None:
    """`true`, `false` and `"auto"`; None for anything else."""
    if value == "auto":
        return "auto"
    return ("on" if value else "off") if isinstance(value, bool) else None


def _counter(value: str) -> tuple[str, float] | None:
    metric, _, number = value.partition("=")
    return (metric, float(number)) if metric and number.replace(".", "", 1).isdecimal() else None


def _allowances(value: object) -> dict[str, float] | None:
    allowed = {metric: positive(number) for metric, number in value.items()} if isinstance(value, dict) else {"": None}
    return {metric: number for metric, number in allowed.items() if number} if all(allowed.values()) else None


SHARE = Form('"5%" or 0.05', share_of)
DURATION = Form('"10m", "90s" or seconds', seconds_of)
ALLOWANCES = Form("a table of metrics and numbers above 0", _allowances)
COUNTER = Form("a metric and a number, such as allocations=2", _counter)
CONTROL = Form('true, false or "auto"', control_of)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The section."""

    tolerance: float = setting(0.05, SHARE)
    """Relative slowdown that fails."""
    time_budget_s: float = setting(600.0, DURATION, "time-budget")
    on_inconclusive: OnInconclusive = "fail"
    schedule: Schedule = "interleaved"
    control: Control = setting("auto", CONTROL)
    """Run an A/A control, a second copy of the arm before that has to pass against the first; `auto`: where the time
    and the memory are there."""
    steady_memory: Control = setting("auto", CONTROL)
    """Make glibc keep freed memory, in both arms; `auto`: where page faults would drown a slowdown in noise."""
    setup: str = ""
    """Shell command that prepares each arm, in its own directory and virtual environment."""
    max_age_days: int = setting(14, COUNT, "max-age")
    counter_tolerance: Mapping[str, float] = field(default_factory=dict, metadata={"form": ALLOWANCES})
    """How many more per step are allowed, by metric."""
