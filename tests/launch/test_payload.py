"""What engines ship to machines without perfdoctor."""

from __future__ import annotations

import zipfile
from pathlib import Path

from perfdoctor.launch.environment import INJECTED
from perfdoctor.launch.payload import packed


def test_it_is_the_whole_probe_and_no_setting(tmp_path: Path) -> None:
    with zipfile.ZipFile(packed(tmp_path)) as archive:
        names = set(archive.namelist())
        assert names == {str(file.relative_to(INJECTED)) for file in INJECTED.rglob("*.py")}
        assert {"sitecustomize.py", "_perfdoctor_probe/__init__.py"} < names
        assert archive.testzip() is None


def test_nobody_may_write_it_and_it_is_made_once(tmp_path: Path) -> None:
    path = packed(tmp_path)
    made = path.stat()
    assert made.st_mode & 0o777 == 0o400
    assert packed(tmp_path).stat().st_mtime_ns == made.st_mtime_ns
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
