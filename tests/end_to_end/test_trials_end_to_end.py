"""Trials on whole jobs, and jobs run with remedies."""

from __future__ import annotations

import sys

import pytest
from running import JOBS, Perfdoctor

from perfdoctor.recording.reader import ProcessFile


@pytest.mark.slow
def test_remedies_are_tried_on_the_running_job_and_the_report_can_be_made_again(perfdoctor: Perfdoctor) -> None:
    options = ("--trial", "--trial-seconds", "8", "--steps", "20", "--select", "PD04", "--try", "threads=1,nothing")
    checked = perfdoctor.check(*options, JOBS / "train.py")
    trials = {trial["remedy"]: trial for trial in checked.json["trials"]["single"]}
    # The test's own environment asks for one thread, so there is nothing to change.
    assert (trials["threads=1"]["verdict"], trials["threads=1"]["reason"]) == ("not-measured", "already set")
    assert trials["nothing"]["gain"]["pairs"] >= 6, trials
    assert "with nothing" in checked.stderr
    assert "What trials of the fixes measured" in checked.stdout
    assert checked.facts["end"] == "stopped"
    assert checked.json["integrity"]["probe_faults"] == []
    # Steps of trials are no steady steps: the step is judged on what came before.
    (file,) = (ProcessFile(path) for path in checked.run.glob("process-*.jsonl"))
    file.refresh()
    assert 20 <= checked.steps < file.step_count - 2 * 6 * 4
    again = perfdoctor("report", checked.run)
    assert "What trials of the fixes measured" in again.stdout


def test_a_job_runs_to_its_end_with_remedies_and_its_own_exit_code(perfdoctor: Perfdoctor) -> None:
    remedies = "threads=2,gc.thresholds,etl.prefetch=4"
    ran = perfdoctor("run", "--apply", remedies, "--", sys.executable, JOBS / "exits.py", "9")
    assert (ran.code, ran.stdout) == (9, "leaving\n")
    assert ran.stderr.strip() == "perfdoctor: etl.prefetch=4 was not applied: there are no workers to work ahead"
