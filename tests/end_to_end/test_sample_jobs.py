"""The jobs that come with perfdoctor to try it on. A recording of the first one is judged among the fast tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Perfdoctor

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parent.parent.parent / "sample_configs"


def test_the_demo_is_ill_in_several_ways(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "40", SAMPLES / "demo_train.py")
    assert checked.code == 1, checked.stderr
    assert checked.facts["end"] == "stopped"
    assert {"PD04.explicit-collect", "PD07.float64"} <= set(checked.findings), checked.stdout
    # Named too-few-workers on a machine of its own, no-cpu-left on one that is crowded.
    assert checked.check("PD03")["outcome"] == "found"
    text = (SAMPLES / "demo_train.py").read_text().splitlines()
    assert "gc.collect()" in text[checked.findings["PD04.explicit-collect"]["location"]["line"] - 1]
    assert len(text) <= 100


def test_the_healthy_sample_is_clear(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "100", SAMPLES / "healthy_train.py")
    assert checked.code == 0, checked.stderr
    assert not checked.alarming, checked.stdout
    # What bfloat16 would save on a CPU that multiplies it is about what is worth telling.
    assert {name for name in checked.findings if name.startswith("PD07")} <= {"PD07.bfloat16-unused"}, checked.stdout
    assert checked.check("PD07")["outcome"] in ("clear", "found"), checked.stdout
    outcomes = {code: checked.check(code)["outcome"] for code in ("PD03", "PD04", "PD08")}
    assert set(outcomes.values()) == {"clear"}, checked.stdout
