"""Recordings that were made, or changed, to harm whoever reads them: nothing in one reaches a terminal or a page as
anything but text."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfdoctor import cli
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read, read_facts

DEMO = Path(__file__).parent.parent / "recordings" / "demo"
EVIL = (
    "\x1b]0;owned\x07\x1b[2J\u202e<script>alert(1)</script><img src=x onerror=alert(2)>\n[x](javascript:alert(3))&\"'`|"
)
STRUCTURE = {"k", "kind", "schema", "started", "name", "version", "device", "devices"}
"""What decides how a record is read at all; everything else a forger may choose."""


def _spoilt(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in STRUCTURE else value + EVIL
    if isinstance(value, list):
        return [_spoilt(item, key) for item in value]
    if isinstance(value, dict):
        return {name: _spoilt(item, name) for name, item in value.items()}
    return value


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The demo, with more than names at the end of each name."""
    run = tmp_path / "run"
    run.mkdir()
    for file in DEMO.iterdir():
        if file.suffix == ".json":
            (run / file.name).write_text(json.dumps(_spoilt(json.loads(file.read_text()))))
            continue
        records = [json.dumps(_spoilt(json.loads(line))) for line in file.read_text().splitlines()]
        if file.name.startswith("process-"):
            faults = ({"k": "no kind" + EVIL}, {"k": "fault", "hook": EVIL, "error": EVIL})
            records += [*map(json.dumps, faults), "[" * 100_000]
        (run / file.name).write_text("\n".join(records) + "\n")
    facts = json.loads((run / "run.json").read_text())
    facts |= {"end": "crashed", "exit_code": 1, "detail": EVIL, "problems": [EVIL]}
    (run / "run.json").write_text(json.dumps(facts))
    return run


@pytest.mark.parametrize(
    "name", ["console", "concise", "markdown", "json", "jsonl", "sarif", "junit", "github", "gitlab", "html"]
)
def test_no_report_carries_control_characters(hostile: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["report", "-v", "--fail-on", "never", "--output", name, str(hostile)])
    assert end.value.code == 4, "the job failed, and the report was made"
    out, err = capfd.readouterr()
    assert "alert(" in out or name in ("sarif", "junit"), "the names are in it"
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "\u202e" not in out or name == "json", "the machine's copy keeps what was recorded"


def test_a_page_has_no_tags_but_its_own(hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    with pytest.raises(SystemExit):
        cli.main(["report", "--fail-on", "never", "--output", f"html:{file}", "--output", "concise", str(hostile)])
    text = file.read_text()
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_markdown_has_no_tags_and_links_of_others_outside_of_code(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["report", "--fail-on", "never", "--output", "markdown", str(hostile)])
    text = re.sub(r"^(```+)\w*\n.*?^\1$", "", capsys.readouterr().out, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "&lt;script>" in prose
    assert "<script>" not in prose
    assert "](javascript" not in prose


@pytest.mark.parametrize("name", ["process-1-1.jsonl", "machine.json", "host.jsonl", "trace-1-1.json", "job.out"])
def test_links_in_a_recording_are_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text('{"k":"process","pid":1}\n')
    shutil.copytree(DEMO, tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(PerfdoctorError, match=f"{name} is no plain file") as error:
        read(RunDirectory(tmp_path / "run"))
    assert error.value.slug == "stray-file"


def test_a_recording_may_itself_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(DEMO)
    assert read_facts(RunDirectory(tmp_path / "latest")) == read_facts(RunDirectory(DEMO))


def test_a_pipe_in_a_recording_does_not_hold_its_reader_up(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "run")
    os.mkfifo(tmp_path / "run" / "process-2-2.jsonl")
    with pytest.raises(PerfdoctorError, match=r"process-2-2\.jsonl is no plain file"):
        read(RunDirectory(tmp_path / "run"))


@pytest.mark.parametrize("name", ["run.json", "machine.json", "timings.json", "trials.json"])
def test_what_is_nested_beyond_reason_is_damaged(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DEMO, tmp_path / "run")
    (tmp_path / "run" / name).write_text("[" * 100_000)
    with pytest.raises(SystemExit) as end:
        cli.main(["report", "--fail-on", "never", "--output", "concise", str(tmp_path / "run")])
    assert end.value.code in (0, 2)
    assert "bug of perfdoctor" not in capsys.readouterr().err


def test_a_directory_with_a_forged_name_is_told_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "a\x1b[31mrun"
    run.mkdir()
    with pytest.raises(SystemExit) as end:
        cli.main(["report", str(run)])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "arun is not a perfdoctor recording" in said
    assert "\x1b" not in said
