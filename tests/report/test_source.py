"""The user's own line beside a finding, and only where it is certainly the one that ran."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import diagnosis_samples as samples
import pytest

from perfdoctor.diagnosis.findings import Location
from perfdoctor.evidence.model import Job
from perfdoctor.report.console import render_console
from perfdoctor.report.source import LONGEST_BYTES, SourceLine, excerpt, source_line

TEXT = "import gc\n\ndef main():\n    gc.collect()  # \x1b[31mred\n"


def job_in(directory: Path, started: str = "") -> Job:
    started = started or datetime.now(timezone.utc).isoformat()
    return replace(samples.EVIDENCE.job, cwd=str(directory), started=started)


def test_the_line_is_shown_without_indentation_or_escapes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT)
    assert source_line(Location("train.py", 4, "main"), job_in(tmp_path)) == "gc.collect()  # red"
    assert source_line(Location(str(tmp_path / "train.py"), 1), job_in(Path("/elsewhere"))) == "import gc"


def test_a_file_that_changed_since_shows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(TEXT)
    job = job_in(tmp_path, "2026-11-20T23:50:00Z")
    began = datetime(2026, 11, 20, 23, 50, tzinfo=timezone.utc).timestamp()
    os.utime(file, (began + 60, began + 60))
    assert source_line(Location("train.py", 4), job) == ""
    os.utime(file, (began - 60, began - 60))
    assert source_line(Location("train.py", 4), job) == "gc.collect()  # red"


@pytest.mark.parametrize("name", ["gone.py", "folder.py", "data.txt", "binary.py", "huge.py", "nul\0.py"])
def test_what_cannot_be_read_shows_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "data.txt").write_text(TEXT)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe" * 10)
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(LONGEST_BYTES + 1)
    assert source_line(Location(name, 1), job_in(tmp_path)) == ""


def test_lines_around_it_keep_their_shape_and_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import gc\n\nclass A:\n    def f():\n\tgc.collect()\n\n    # \x1b[1mend\n\n\n")
    job = job_in(tmp_path)
    assert excerpt(Location("train.py", 4, "f"), job, 1) == (
        SourceLine(3, "class A:", False),
        SourceLine(4, "    def f():", True),
        SourceLine(5, "    gc.collect()", False),
    )
    around = excerpt(Location("train.py", 4, "f"), job, 4)
    assert [line.number for line in around] == [1, 2, 3, 4, 5, 6, 7], "blank lines at the ends say nothing"
    assert [line.text for line in excerpt(Location("train.py", 7), job, 0)] == ["# end"]
    assert [line.number for line in excerpt(Location("train.py", 8), job, 1)] == [7, 8]


@pytest.mark.parametrize("line", [0, -1, 99])
def test_a_line_that_is_not_there_shows_nothing(tmp_path: Path, line: int) -> None:
    (tmp_path / "train.py").write_text(TEXT)
    assert source_line(Location("train.py", line), job_in(tmp_path)) == ""


def test_a_start_that_is_no_date_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT)
    assert source_line(Location("train.py", 1), job_in(tmp_path, "yesterday")) == ""
    assert source_line(None, job_in(tmp_path)) == ""


def test_the_report_shows_it_beside_the_place(tmp_path: Path) -> None:
    from rich.console import Console

    (tmp_path / "train.py").write_text("\n" * 40 + "    for batch in loader:  # " + "long " * 50 + "\n")
    evidence = replace(samples.EVIDENCE, job=job_in(tmp_path))
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(render_console(replace(samples.two_findings(), evidence=evidence), next_command=""))
    (line,) = [line for line in capture.get().splitlines() if "train.py:41" in line]
    assert line.startswith("   where train.py:41  for batch in loader:  # long")
    assert line.endswith("…") and len(line) <= 80
