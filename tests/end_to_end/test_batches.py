"""A job whose forward and backward are run again on more samples once it has made its last step."""

from __future__ import annotations

import pytest
from running import JOBS, Perfdoctor

pytestmark = pytest.mark.slow


def test_a_job_that_is_stopped_says_what_more_samples_take(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check_once("--steps", "20", JOBS / "ill.py", "batch")
    found = checked.findings["PD05.batch-too-small"]
    assert "run again with a larger batch" in found["savings"]["method"]
    assert "missing" not in checked.stdout and checked.code == 0
    numbers = {one["name"]: one["value"] for one in found["evidence"]}
    assert numbers["batch"] == 2 and 1 < numbers["more_low"] <= numbers["more_high"] <= 4
