"""Files that both arms share: whether a job wrote into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.gate import untracked
from perfdoctor.gate.untracked import take


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.bin", "inner/b.bin"):
        (folder / name).write_text("pixels")
    return folder


def test_what_is_only_read_is_not_told(data: Path) -> None:
    seen = take([data])
    (data / "a.bin").read_text()
    assert seen.problems() == []
    assert seen.whole


@pytest.mark.parametrize("change", ["longer", "same size", "gone", "new"])
def test_what_was_written_is_named(data: Path, change: str) -> None:
    seen = take([data])
    target = data / "inner" / "b.bin"
    if change == "longer":
        target.write_text("pixels and more")
    elif change == "same size":
        os.utime(target, ns=(1, 1))
    elif change == "gone":
        target.unlink()
    else:
        target = data / "checkpoint.pt"
        target.write_text("weights")
    (problem,) = seen.problems()
    assert str(target) in problem
    assert "a.bin" not in problem


def test_caches_and_environments_are_not_watched(data: Path) -> None:
    (data / "env" / "lib").mkdir(parents=True)
    (data / "env" / "pyvenv.cfg").write_text("")
    (data / "__pycache__").mkdir()
    seen = take([data])
    (data / "__pycache__" / "x.pyc").write_text("")
    (data / "env" / "lib" / "x.py").write_text("")
    assert seen.problems() == []


def test_of_very_many_files_the_first_are_watched(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untracked, "MOST_WATCHED", 1)
    seen = take([data])
    assert (len(seen.files), seen.whole) == (1, False)
    (data / "new.bin").write_text("")
    assert seen.problems() == []
    (changed,) = seen.files
    Path(changed).write_text("more pixels")
    assert len(seen.problems()) == 1


def test_a_single_file_and_many_changes_are_summed_up(data: Path) -> None:
    seen = take([data / "a.bin", data / "inner"])
    (data / "a.bin").unlink()
    for number in range(9):
        (data / "inner" / f"{number}.pt").write_text("")
    (problem,) = seen.problems()
    assert "and 5 more" in problem
