"""A note to the job's own run of a real tracker."""

from __future__ import annotations

import re

import pytest
from running import JOBS, Perfdoctor

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("tracker", "place"),
    [("mlflow", "mlruns/*/{run}/artifacts/perfdoctor"), ("wandb", "wandb/offline-run-*-{run}/files/perfdoctor")],
)
def test_the_run_gets_the_report_and_the_job_prints_what_it_prints(
    perfdoctor: Perfdoctor, tracker: str, place: str
) -> None:
    pytest.importorskip(tracker)
    job = JOBS / "tracked_run.py"
    checked = perfdoctor.check("--to-end", "--log-to", tracker, job, tracker)
    assert checked.code == 0, checked.stderr
    assert "perfdoctor: the note is in " in checked.stderr
    (process,) = checked.run.glob("process-*.jsonl")
    (run,) = re.findall(r'"k":"tracked".*?"run":"(\w+)"', process.read_text())
    (folder,) = perfdoctor.directory.glob(place.format(run=run))
    report = (folder / "report.md").read_text()
    assert report.startswith("# perfdoctor: ")
    bare = perfdoctor.bare(job, tracker)
    losses = re.compile(r"^loss \d.*", re.MULTILINE)  # the report may show a line of code that begins so
    assert losses.findall(checked.stdout) == losses.findall(bare.stdout.decode()) != []
