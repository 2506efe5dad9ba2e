"""`[gate]` and `[assert]`."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_config import written

from perfdoctor.config.gate import GateSettings, seconds_of, share_of
from perfdoctor.config.rules import Budget
from perfdoctor.errors import PerfdoctorError


def test_nothing_set_is_the_default(tmp_path: Path) -> None:
    config = written(tmp_path, "")
    assert config.gate == GateSettings()
    assert config.budgets == ()


def test_everything_can_be_set(tmp_path: Path) -> None:
    text = """
[gate]
tolerance = "10%"
time-budget = "90s"
on-inconclusive = "warn"
schedule = "abba"
control = true
steady-memory = false
setup = "pip install -e ."
max-age = 3
[gate.counter-tolerance]
allocations = 2
"""
    assert written(tmp_path, text).gate == GateSettings(
        0.1, 90, "warn", "abba", "on", "off", "pip install -e .", 3, {"allocations": 2.0}
    )


def test_budgets_on_metrics_and_checks(tmp_path: Path) -> None:
    text = (
        '[assert]\ndata_wait_share = ["warn", { max = 0.1 }]\nsyncs = ["error", { min = 1, max = 8 }]\nPD04 = "error"\n'
    )
    assert written(tmp_path, text).budgets == (
        Budget("data_wait_share", "warn", 0.1),
        Budget("syncs", "error", 8, 1),
        Budget("PD04", "error"),
    )


@pytest.mark.parametrize(
    "text",
    [
        '[gate]\ntolerance = "0%"',
        '[gate]\ntolerance = "-5%"',
        '[gate]\ntime-budget = "soon"',
        '[gate]\nschedule = "parallel"',
        '[gate]\ncontrol = "yes"',
        '[gate]\nsteady-memory = "yes"',
        "[gate]\ntolerence = 0.1",
        '[assert]\nsyncs = ["error", { most = 3 }]',
        '[assert]\nsyncs = ["error", { max = "3" }]',
        '[assert]\nPD04 = "fatal"',
        "[assert]\nPD04 = []",
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        written(tmp_path, text)
    key = text.split("\n")[1].split(" ")[0]
    assert key in caught.value.message
    assert "perfdoctor.toml" in caught.value.message


@pytest.mark.parametrize(
    ("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("100%", 1.0), ("101%", None), ("x", None)]
)
def test_percent(text: str, value: float | None) -> None:
    assert share_of(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("0", None), ("1d", None)]
)
def test_duration(text: str, value: float | None) -> None:
    assert seconds_of(text) == value
