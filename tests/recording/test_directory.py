from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.recording.directory import RunDirectory


def test_git_does_not_see_what_is_perfdoctors_own(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / ".perfdoctor" / "runs", "train")
    assert (tmp_path / ".perfdoctor" / ".gitignore").read_text() == "*\n"
    assert len(list((tmp_path / ".perfdoctor" / "runs").iterdir())) == 1


@pytest.mark.parametrize("there", ["runs", "elsewhere/runs"])
def test_a_directory_of_the_users_choice_is_left_as_it_is(tmp_path: Path, there: str) -> None:
    run = RunDirectory.create(tmp_path / there, "train")
    assert list((tmp_path / there).iterdir()) == [run.path]
    assert not list(tmp_path.rglob(".gitignore"))
