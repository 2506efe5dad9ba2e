"""A launcher of a large job leaves a digest of its node; of a small one, none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfdoctor.observation import session
from perfdoctor.recording.directory import RunDirectory

RECORDED = Path(__file__).parent.parent / "recordings" / "two_ranks"


def _left(directory: Path) -> list[Path]:
    shutil.copytree(RECORDED, directory / "run")
    session.leave_digest(RunDirectory(directory / "run"))
    return list(RunDirectory(directory / "run").digest_files())


def test_few_ranks_are_read_as_they_are(tmp_path: Path) -> None:
    assert not _left(tmp_path)


def test_of_many_ranks_there_is_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MANY", 1)
    assert len(_left(tmp_path)) == 1


def test_a_digest_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: RunDirectory) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session, "MANY", 1)
    monkeypatch.setattr(session, "write_digest", full)
    assert not _left(tmp_path)
    assert "No space left on device" in capsys.readouterr().err
