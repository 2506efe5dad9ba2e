"""Storage below a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from stubborn import StubbornFileSystem

from perfdoctor.storage import copies


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[type[StubbornFileSystem]]:
    """`stubborn://` with room, until a test takes it."""
    fsspec.register_implementation("stubborn", StubbornFileSystem, clobber=True)
    StubbornFileSystem.room = None
    yield StubbornFileSystem
    StubbornFileSystem.room = None


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Local copies of a test are gone after it, as they are after a process."""
    yield
    for folder in list(copies._FOLDERS):
        copies.close_folder(folder)
