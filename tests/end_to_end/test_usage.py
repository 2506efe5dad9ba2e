"""What cannot be done is refused before anything runs, in one clear line with what to do instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from running import JOBS, Said


def test_a_run_directory_that_cannot_be_made(said: Said, tmp_path: Path) -> None:
    (tmp_path / "in-the-way").touch()
    checked = said("check", "--runs", tmp_path / "in-the-way" / "runs", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot make a run directory" in checked.stderr and "--runs DIR" in checked.stderr
    assert "training" not in checked.stdout


def test_a_report_that_cannot_be_written_is_refused_before_the_job(said: Said, tmp_path: Path) -> None:
    checked = said("check", "--output", f"json:{tmp_path}/none/report.json", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot write the report" in checked.stderr
    assert not (tmp_path / ".perfdoctor").exists()


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["trian.py"], "did you mean train.py?"),
        (["notes.txt"], "notes.txt is not a Python program"),
        (["."], "without __main__.py"),
        (["ls", "-l"], "perfdoctor check -- ls -l"),
        (["--", "no-such-command"], "there is no command no-such-command"),
        ([], "there is nothing to run"),
        (["--steps", "-3", "train.py"], "--steps"),
        (["--job-output", "nowhere", "train.py"], "'live', 'passthrough', 'file'"),
        (["--output", "pdf", "train.py"], "console, concise, markdown, json, jsonl, sarif, junit, github, gitlab"),
        (["--output", "json", "--output", "markdown", "train.py"], "two reports cannot share stdout"),
        (["--log-every", "0", "train.py"], "--log-every"),
        (["--fail-on", "sometimes", "train.py"], "error"),
        (["--select", "PD99", "train.py"], "PD99"),
    ],
)
def test_usage_errors_say_what_to_do(said: Said, tmp_path: Path, words: list[str], advice: str) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('the job was started')\n")
    (tmp_path / "notes.txt").write_text("to do\n")
    checked = said("check", *words)
    assert checked.code == 2
    assert advice in checked.stderr
    assert "Traceback" not in checked.stderr
    assert "the job was started" not in checked.stderr


def test_a_misspelled_setting_names_file_and_key(said: Said, tmp_path: Path) -> None:
    (tmp_path / "perfdoctor.toml").write_text("stepz = 3\n")
    checked = said("check", JOBS / "train.py")
    assert checked.code == 2
    assert str(tmp_path / "perfdoctor.toml") in checked.stderr
    assert "stepz" in checked.stderr and "`steps`" in checked.stderr


def test_an_unknown_remedy_is_refused(said: Said) -> None:
    ran = said("run", "--apply", "memory.maloc", "--", sys.executable, JOBS / "train.py")
    assert ran.code == 2 and "did you mean memory.malloc?" in ran.stderr
