"""Recordings that are uploaded while they grow."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from stubborn import StubbornFileSystem

from perfdoctor.commands.stored import deliver, stored
from perfdoctor.config.settings import Config
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.storage.copies import fetch_others, origin
from perfdoctor.storage.remote import Remote, opened
from perfdoctor.storage.uploading import Uploader


def _recording(parent: Path, name: str = "20261123-150000-train") -> Path:
    run = parent / name
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "process-1-1.jsonl").write_text("a line\n")
    return run


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_round_uploads_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    run = _recording(tmp_path / "here")
    sent: list[str] = []
    upload = Remote.upload
    monkeypatch.setattr(
        Remote, "upload", lambda self, file, to: (sent.append(f"{to}/{file.name}"), upload(self, file, to))
    )
    uploader = Uploader(opened(f"file://{tmp_path}/there"), tmp_path / "here", "-0a1b2c3d", None)
    uploader.upload()
    # run.json comes last: with it, readers take a folder for a recording.
    assert sent == [f"{run.name}-0a1b2c3d/{name}" for name in ("process-1-1.jsonl", "run.json")]
    uploader.upload()
    assert len(sent) == 2
    with (run / "process-1-1.jsonl").open("a") as file:
        file.write("another line\n")
    uploader.upload()
    assert sent[2:] == [f"{run.name}-0a1b2c3d/process-1-1.jsonl"]
    assert (tmp_path / f"there/{run.name}-0a1b2c3d/process-1-1.jsonl").read_text() == "a line\nanother line\n"


def test_only_plain_files_of_recordings_are_uploaded(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    run = _recording(tmp_path / "here")
    (tmp_path / "secret").write_text("secret")
    (run / "process-2-2.jsonl").symlink_to(tmp_path / "secret")
    (run / "run.tmp").write_text("half")
    os.mkfifo(run / "pipe")
    (run / "launches").mkdir()
    (tmp_path / "here/trees-7").mkdir()
    (tmp_path / "here/trees-7/train.py").write_text("pass")
    Uploader(opened(f"file://{tmp_path}/there"), tmp_path / "here", "", None).upload()
    assert _names(tmp_path / "there") == [f"{run.name}/process-1-1.jsonl", f"{run.name}/run.json"]


def test_what_has_grown_is_uploaded_within_an_interval(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    uploader = Uploader(opened(f"file://{tmp_path}/there"), tmp_path / "here", "", 0.01)
    uploaded, upload = threading.Event(), uploader.upload

    def round_() -> None:
        upload()
        if (tmp_path / "there" / "20261123-150000-train" / "run.json").exists():
            uploaded.set()

    uploader.upload = round_  # type: ignore[method-assign]
    uploader.start()
    _recording(tmp_path / "here")
    assert uploaded.wait(60), "nothing was uploaded before the end"
    assert uploader.finish() == ""


def test_recordings_of_two_jobs_that_begin_at_once_have_names_of_their_own(tmp_path: Path) -> None:
    config = Config(storage=f"file://{tmp_path}/there")
    with stored(config) as one, stored(config) as other:
        assert one.runs != other.runs
        called = [origin(_recording(place.runs)) for place in (one, other)]
    assert len(set(called)) == 2
    assert sorted(path.name for path in (tmp_path / "there").glob("2*")) == sorted(
        url.rpartition("/")[2] for url in called
    )
    assert not one.runs.exists()
    assert not other.runs.exists()


def test_without_a_url_nothing_changes() -> None:
    config = Config()
    with stored(config) as same:
        assert same is config


def test_storage_that_refuses_the_first_write_starts_nothing(
    tmp_path: Path, stubborn: type[StubbornFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    stubborn.room = 0
    with pytest.raises(PerfdoctorError, match="cannot write to"), stored(Config(storage=f"stubborn://{tmp_path}")):
        pytest.fail("a job would have been started")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_storage_that_is_full_in_the_middle_leaves_the_local_copy(
    tmp_path: Path, stubborn: type[StubbornFileSystem], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    with stored(Config(storage=f"stubborn://me:s3cr3t@{tmp_path}/there")) as config:
        stubborn.room = 1
        run = _recording(config.runs)
        assert origin(run).startswith(f"stubborn://me:***@{tmp_path}/there/{run.name}-")
    said = capsys.readouterr().err
    assert f"not all of the recording could be uploaded: cannot write to stubborn://me:***@{tmp_path}/there: " in said
    assert f"perfdoctor report {run}\n" in said
    assert "s3cr3t" not in said
    assert _names(run) == ["process-1-1.jsonl", "run.json"]
    # It is called by its path from now on, for that is where all of it is.
    assert origin(run) == str(run)


def test_storage_that_takes_writes_again_gets_all(tmp_path: Path, stubborn: type[StubbornFileSystem]) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    run = _recording(tmp_path / "here")
    uploader = Uploader(opened(f"stubborn://{tmp_path}/there"), tmp_path / "here", "", None)
    stubborn.room = 1
    uploader.upload()
    assert uploader.failure
    stubborn.room = None
    uploader.upload()
    assert uploader.failure == ""
    assert _names(tmp_path / "there") == [f"{run.name}/process-1-1.jsonl", f"{run.name}/run.json"]


def test_a_recording_is_delivered_before_the_command_ends_and_others_are_not_uploaded_again(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with stored(Config(storage=f"file://{there}")) as here:
        run = _recording(here.runs)
        assert deliver(RunDirectory(run))
        (uploaded,) = there.glob("2*")
        assert (uploaded / "run.json").exists()
        other = _recording(there, f"{run.name}-0a1b2c3d")
        assert fetch_others(run) and not fetch_others(run), "once"
        assert origin(here.runs / other.name) == f"file://{other}"
    assert sorted(there.glob("2*")) == sorted([uploaded, other])
    assert not here.runs.exists()
    assert not deliver(RunDirectory(tmp_path)), "it does not go to storage"


def test_what_cannot_be_delivered_is_said(tmp_path: Path, stubborn: type[StubbornFileSystem]) -> None:
    with stored(Config(storage=f"stubborn://{tmp_path}/there")) as here:
        run = _recording(here.runs)
        stubborn.room = 0
        assert not deliver(RunDirectory(run))
