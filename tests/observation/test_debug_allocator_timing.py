"""An interpreter is timed with the job's debugging allocator and without, after the job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import recordings

from perfdoctor.observation.debug_allocator import time_debug_allocator
from perfdoctor.recording.base import Missing
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read_allocator_timing
from perfdoctor.recording.settings import AllocatorTiming


def _run(directory: Path, executable: str = sys.executable, **settings: Any) -> RunDirectory:
    records = [
        {"k": "process", "version": 2, "pid": 7, "ppid": 1, "t": 1, "executable": executable},
        {"k": "torch", "version": "2.13.0", "environment": {}},
        recordings.settings(**settings),
        {"k": "steps", "first": 0, "n": 3, "t": 30, "wall_us": 10},
    ]
    (directory / "run.json").write_text('{"schema": "perfdoctor.run/2"}')
    (directory / "process-7-1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return RunDirectory(directory)


@pytest.mark.parametrize(
    "settings",
    [{"environment": {"PYTHONMALLOC": "debug"}}, {"python_options": ["dev"]}],
    ids=["the variable", "the development mode"],
)
def test_objects_are_dearer_with_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = _run(tmp_path, **settings)
    time_debug_allocator(run, os.environ)
    timing = read_allocator_timing(run)
    assert isinstance(timing, AllocatorTiming)
    assert timing.allocating > 1.1 and timing.allocating > timing.calling


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"environment": {"PYTHONMALLOC": "malloc"}},
        {"environment": {"PYTHONMALLOC": "pymalloc"}, "python_options": ["dev"]},
    ],
    ids=["nothing", "another allocator", "a development mode without it"],
)
def test_without_it_nothing_is_started(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = _run(tmp_path, "/nonexistent", **settings)
    time_debug_allocator(run, os.environ)
    assert not run.python_file.exists() and isinstance(read_allocator_timing(run), Missing)


def test_an_interpreter_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run = _run(tmp_path, "/nonexistent", environment={"PYTHONMALLOC": "debug"})
    time_debug_allocator(run, os.environ)
    assert not run.python_file.exists() and isinstance(read_allocator_timing(run), Missing)
