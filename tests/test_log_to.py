"""Notes to experiment trackers: by the real ones where installed, W&B's server apart, which no test reaches."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from perfdoctor import cli
from perfdoctor.commands import log_to
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.injected._perfdoctor_probe.tracker import Tracker, public
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.report.verdict import verdict
from perfdoctor.trials.judge import judge

DEMO = Path(__file__).parent / "recordings" / "demo"


def recorded(place: Path, **run: object) -> tuple[RunDirectory, Diagnosis]:
    """A recording whose job had this run, and its diagnosis."""
    directory = RunDirectory(place / "run")
    shutil.copytree(DEMO, directory.path)
    (file,) = directory.process_files()
    with file.open("a") as lines:
        lines.write(json.dumps({"k": "tracked", **run}) + "\n")
    return directory, judge(directory, Config())


class Recorder:
    """What the probe would write."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def record(self, kind: str, **values: object) -> None:
        self.records.append({"k": kind, **values})


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ann:s3cret@tracking.example/api?token=abc", "https://tracking.example/api"),
        ("http://ann:s3/cret@tracking.example", "http://tracking.example"),
        ("http://tracking.example:5000", "http://tracking.example:5000"),
        ("file:///home/a@b/mlruns", "file:///home/a@b/mlruns"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("mlruns", "mlruns"),
        ("databricks", "databricks"),
    ],
)
def test_no_credential_is_recorded(address: str, shown: str) -> None:
    assert public(address) == shown


def test_the_address_with_its_password_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = recorded(tmp_path, tracker="mlflow", run="1", at="https://tracking.example/api")
    (process,) = log_to.read(directory).processes
    (run,) = process.tracked
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s3cret@tracking.example/api")
    assert log_to._address(run) == "https://ann:s3cret@tracking.example/api"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s3cret@elsewhere.example/api")
    assert log_to._address(run) == "https://tracking.example/api"


def test_what_the_job_has_not_imported_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "wandb", ""):
        monkeypatch.delitem(sys.modules, name, raising=False)
        recorder = Recorder()
        Tracker(recorder, name).look()
        assert recorder.records == []
        assert name not in sys.modules


def test_a_run_is_recorded_once_and_the_next_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    run = types.SimpleNamespace(
        id="abc",
        entity="",
        project="p",
        dir="/x/files",
        offline=True,
        disabled=False,
        settings=types.SimpleNamespace(base_url="https://me:pw@api.wandb.example"),
    )
    module: Any = types.ModuleType("wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    recorder = Recorder()
    tracker = Tracker(recorder, "wandb")
    for module.run in (None, run, run):
        tracker.look()
    run.id = "def"
    tracker.look()
    run.disabled, run.id = True, "ghi"
    tracker.look()
    assert [record["path"] for record in recorder.records] == ["p/abc", "p/def"]
    assert recorder.records[0]["at"] == "https://api.wandb.example"


def test_the_active_run_of_mlflow_gets_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    recorder = Recorder()
    tracker = Tracker(recorder, "mlflow")
    tracker.look()
    with mlflow.start_run() as run:
        tracker.look()
    (record,) = recorder.records
    assert record["run"] == run.info.run_id
    directory, diagnosis = recorded(tmp_path, **record)
    log_to.note("mlflow", directory, diagnosis, "# the report\n")
    assert f"perfdoctor: the note is in the MLflow run {run.info.run_id}: " in capsys.readouterr().err
    client = mlflow.MlflowClient()
    kept = client.get_run(run.info.run_id)
    step = diagnosis.evidence.step
    assert kept.data.metrics["perfdoctor/steady_step_ms/total"] == pytest.approx(getattr(step, "step_ms", 0.0))
    assert kept.data.tags["perfdoctor.verdict"] == verdict(diagnosis)
    assert Path(client.download_artifacts(run.info.run_id, "perfdoctor/report.md")).read_text() == "# the report\n"
    assert kept.info.status == "FINISHED"
    assert len(client.search_runs([kept.info.experiment_id])) == 1, "no run is started"


def test_an_offline_run_of_wandb_gets_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tmp_path / "offline-run-1" / "files"
    directory, diagnosis = recorded(tmp_path, tracker="wandb", run="1", path="p/1", files=str(files), offline=True)
    log_to.note("wandb", directory, diagnosis, "# the report\n")
    assert "which is offline" in capsys.readouterr().err
    assert (files / "perfdoctor" / "report.md").read_text() == "# the report\n"
    assert "perfdoctor/steady_step_ms/total" in json.loads((files / "perfdoctor" / "numbers.json").read_text())


STAND_IN = """
import json, os

class Api:
    def __init__(self, overrides, timeout):
        self.seen = {"overrides": overrides}
    def run(self, path):
        self.seen["path"] = path
        self.summary = self
        return self
    def update(self, numbers):
        self.seen["summary"] = numbers
    def upload_file(self, path, root):
        self.seen["file"] = os.path.relpath(path, root)
        json.dump(self.seen, open(os.environ["SEEN"], "w"))
"""


def test_a_run_on_a_server_of_wandb_gets_a_summary_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.json"))
    directory, diagnosis = recorded(
        tmp_path, tracker="wandb", run="1", path="ann/p/1", files=str(tmp_path), at="https://wandb.example"
    )
    log_to.note("wandb", directory, diagnosis, "# the report\n")
    assert "perfdoctor: the note is in the W&B run ann/p/1" in capsys.readouterr().err
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["overrides"] == {"base_url": "https://wandb.example"}
    assert (seen["path"], seen["file"]) == ("ann/p/1", "perfdoctor/report.md")
    assert seen["summary"]["perfdoctor/verdict"] == verdict(diagnosis)


def test_what_wandb_offers_is_what_the_note_uses() -> None:
    public_api = pytest.importorskip("wandb.apis.public")
    assert callable(public_api.Run.upload_file)
    assert isinstance(public_api.Run.summary, property)


def test_a_tracker_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb.py").write_text("raise RuntimeError('https://ann:s3cret@wandb.example is down')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    directory, diagnosis = recorded(tmp_path, tracker="wandb", run="1", files=str(tmp_path))
    log_to.note("wandb", directory, diagnosis, "")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("perfdoctor: no note to W&B: RuntimeError:")
    assert "s3cret" not in said


def test_a_note_can_be_left_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = recorded(tmp_path, tracker="wandb", run="1", files=str(tmp_path / "files"), offline=True)
    with pytest.raises(SystemExit) as end:
        cli.main(["report", str(directory.path), "--log-to", "wandb", "--output", "concise", "--fail-on", "never"])
    assert not end.value.code
    assert "perfdoctor: the note is in " in capsys.readouterr().err
    assert (tmp_path / "files" / "perfdoctor" / "report.md").read_text().startswith("# perfdoctor: ")


def test_without_a_run_the_user_is_told_when_there_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, diagnosis = recorded(tmp_path, tracker="wandb", run="1")
    log_to.note("mlflow", directory, diagnosis, "")
    assert "no note to MLflow: the recording knows no run" in capsys.readouterr().err


def test_a_report_runs_no_program_that_a_recording_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording may be anybody's: its interpreter, and modules in its working directory, are not ours to run."""
    evil, touched = tmp_path / "python", tmp_path / "touched"
    evil.write_text(f"#!/bin/sh\ntouch {touched}\n")
    evil.chmod(0o755)
    (tmp_path / "json.py").write_text(f"open({str(touched)!r}, 'w')")
    directory, _ = recorded(tmp_path, tracker="wandb", run="1", files=str(tmp_path / "files"), offline=True)
    facts = json.loads(directory.run_file.read_text())
    directory.run_file.write_text(json.dumps({**facts, "cwd": str(tmp_path)}))
    (file,) = directory.process_files()
    header, *others = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(header), "executable": str(evil)}), *others, ""]))
    with pytest.raises(SystemExit):
        cli.main(["report", str(directory.path), "--log-to", "wandb", "--output", "concise", "--fail-on", "never"])
    assert "perfdoctor: the note is in " in capsys.readouterr().err
    assert not touched.exists()
    log_to.note("wandb", directory, judge(directory, Config()), "", own=True)
    assert touched.exists(), "after its own job, perfdoctor asks the job's interpreter"
