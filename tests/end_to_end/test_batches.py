"""A job whose forward and backward are run again on more samples once it has made its last step."""

from __future__ import annotations

import json

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


def test_one_that_ends_by_itself_is_asked_the_same_afterwards_without_a_word(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "soon_over.py")
    (file,) = checked.run.glob("process-*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    (samples,) = (record for record in records if record["k"] == "samples")
    (timings,) = (record for record in records if record["k"] == "timings")
    assert samples["same"] is True
    assert len(timings["passes"]["times"]) > 1
    assert [line for line in checked.stdout.splitlines() if line.startswith("epoch")] == [
        f"epoch {number}" for number in range(10)
    ]
    assert checked.findings["PD03.samples-made-again"]["location"]["line"] == 15
