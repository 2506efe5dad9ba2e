"""Real trackers, as users have them: what they do in each step is found with its line, every 50 steps it is not."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from running import JOBS, Perfdoctor

pytestmark = pytest.mark.slow

JOB = JOBS / "tracked.py"
LOGGERS = {
    "tensorboard": "add_histogram",
    "wandb": "wandb.log",
    "mlflow": "log_metrics",
    "mlflow_client": "log_batch",
}
there = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"))
    for name in LOGGERS
    for package in [name.partition("_")[0]]
]


@pytest.mark.parametrize("tracker", there)
def test_what_a_tracker_does_in_each_step_is_found_with_its_line(perfdoctor: Perfdoctor, tracker: str) -> None:
    checked = perfdoctor.check("--steps", "40", JOB, tracker, "1")
    assert "PD20.logging" in checked.findings, checked.stdout
    found = checked.findings["PD20.logging"]
    (line,) = [n for n, text in enumerate(JOB.read_text().splitlines(), 1) if f"# {tracker}'s line" in text]
    assert found["location"]["file"].endswith(JOB.name) and found["location"]["line"] == line
    assert LOGGERS[tracker] in {number["value"] for number in found["evidence"]}


@pytest.mark.parametrize("tracker", there)
def test_a_tracker_every_50_steps_is_none(perfdoctor: Perfdoctor, tracker: str) -> None:
    checked = perfdoctor.check("--steps", "110", JOB, tracker, "50")
    assert "PD20.logging" not in checked.findings, checked.stdout
    assert checked.check("PD20")["outcome"] == "clear"
