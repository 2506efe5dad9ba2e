"""Libraries in the HTML report are those that their list says, to the byte, and come with their licences."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from perfdoctor.report.html import charts
from perfdoctor.report.html.charts.scripts import chart_scripts

FOLDER = Path(charts.__file__).parents[1] / "vendored"
ROW = re.compile(r"^\| (\S+) \| (\S+) ([\d.]+) \| \S+ \| (\S+) \| ([\d,]+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_every_file_is_listed_with_its_size_and_checksum() -> None:
    listed = {row[0]: (int(row[4].replace(",", "")), row[5]) for row in ROW.findall((FOLDER / "README.md").read_text())}
    there = {
        file.name: (file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in FOLDER.iterdir()
        if file.suffix in (".js", ".css")
    }
    assert listed == there


def test_scripts_bring_their_licences() -> None:
    scripts = "".join(chart_scripts(["steps", "flame"]))
    for name in ("Copyright (c) 2022 Leon Sorokin", "Mike Bostock", "Apache License"):
        assert name in scripts
    assert "Leon Sorokin" not in "".join(chart_scripts(["ranks"]))
