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


# Says how it was started in the way that the timing program says how long it took.
_INTERPRETER = """#!/bin/sh
case "$PYTHONMALLOC $1 $2" in
    "debug "* | *"-X dev") echo '[45, 11]' ;;
    *) echo '[15, 10]' ;;
esac
"""
_SWITCHES = pytest.mark.parametrize(
    "settings",
    [{"environment": {"PYTHONMALLOC": "debug"}}, {"python_options": ["dev"]}],
    ids=["the variable", "the development mode"],
)


@_SWITCHES
def test_an_interpreter_with_it_is_compared_with_one_without(tmp_path: Path, settings: dict[str, Any]) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(_INTERPRETER)
    interpreter.chmod(0o700)
    run = _run(tmp_path, str(interpreter), **settings)
    time_debug_allocator(run, {**os.environ, "PYTHONMALLOC": "debug"})
    assert read_allocator_timing(run) == AllocatorTiming(allocating=3.0, calling=1.1)


@_SWITCHES
def test_a_real_interpreter_times_both(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = _run(tmp_path, **settings)
    time_debug_allocator(run, os.environ)
    timing = read_allocator_timing(run)
    assert isinstance(timing, AllocatorTiming) and timing.allocating > 0 and timing.calling > 0


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
