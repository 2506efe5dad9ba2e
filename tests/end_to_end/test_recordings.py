"""What a recording holds and keeps to itself, and what is said of one that is cut, too new or none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from running import Checked, Said


def test_recordings_are_readable_by_their_owner_only(healthy: Checked) -> None:
    assert stat.S_IMODE(healthy.run.stat().st_mode) == 0o700
    # machine.json names no job; the directory keeps it from others all the same.
    for file in healthy.run.iterdir():
        assert file.name == "machine.json" or stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_recordings_hold_no_secrets(healthy: Checked) -> None:
    for file in healthy.run.iterdir():
        assert "secret" not in file.read_text(), file
    assert healthy.facts["command"][-2:] == ["--api-key", "***"]
    assert "secret" not in healthy.stdout + str(healthy.json)


def test_only_allowed_variables_are_recorded(healthy: Checked) -> None:
    assert healthy.facts["environment"] == {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}


def test_nothing_of_the_run_stays_open(healthy: Checked) -> None:
    assert not (healthy.run / "control.sock").exists()
    assert not (healthy.run / "run.tmp").exists()


def _copy(healthy: Checked, to: Path) -> Path:
    to.mkdir()
    for file in healthy.run.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_cut_recording_is_judged_on_what_is_whole(said: Said, tmp_path: Path, healthy: Checked) -> None:
    run = _copy(healthy, tmp_path / "run")
    (file,) = run.glob("process-*.jsonl")
    file.write_bytes(file.read_bytes()[:-7])
    checked = said("report", run)
    assert checked.code == 0, checked.stderr
    assert "the last line is cut" in " ".join(checked.stdout.split())


def test_a_recording_of_a_newer_version(said: Said, tmp_path: Path, healthy: Checked) -> None:
    run = _copy(healthy, tmp_path / "run")
    facts = (run / "run.json").read_text()
    (run / "run.json").write_text(facts.replace("perfdoctor.run/2", "perfdoctor.run/99"))
    checked = said("report", run)
    assert checked.code == 2
    assert "newer perfdoctor" in checked.stderr and "pip install --upgrade" in checked.stderr


@pytest.mark.parametrize("facts", ['{"schema": "other/1"}', '{"schema": "perfdoctor.run/one"}', "[]", "{", None])
def test_what_is_no_recording(said: Said, tmp_path: Path, facts: str | None) -> None:
    if facts is not None:
        (tmp_path / "run.json").write_text(facts)
    checked = said("report", tmp_path)
    assert checked.code == 2
    assert len(checked.stderr.splitlines()) == 2
    assert str(tmp_path) in checked.stderr
