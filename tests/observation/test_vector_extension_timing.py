from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import recordings

from perfdoctor.observation.vector_extensions import time_vector_extensions
from perfdoctor.recording.directory import RunDirectory

LIMIT = {"ATEN_CPU_CAPABILITY": "default"}
MATMUL = {
    "name": "aten::gelu",
    "dtype": "float32",
    "shapes": [[64, 64], []],
    "types": ["float", ""],
    "concrete": [None, "none"],
    "calls_per_step": 2.0,
}


def _interpreter(directory: Path, body: str) -> str:
    """Stands for the job's interpreter: answers as `body` says, twice as slowly under the limit."""
    file = directory / "python"
    file.write_text(
        f"#!{sys.executable}\nimport json, os, sys, time\norder = json.loads(sys.stdin.readline())\n"
        f"limited = 'ATEN_CPU_CAPABILITY' in os.environ\n{body}\n"
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


ANSWERS = """
print(json.dumps({"capability": "DEFAULT" if limited else "AVX2", "can": [True]}), flush=True)
for line in sys.stdin:
    print(json.dumps([200.0 if limited else 100.0]), flush=True)
"""


def _run(
    directory: Path, executable: str, limit: dict[str, str] | None = None, devices: Sequence[str] = ("cpu",)
) -> RunDirectory:
    settings = recordings.settings(precision={"parameter_devices": devices}, backend={"capability": "DEFAULT"})
    records = [
        {"k": "process", "version": 2, "pid": 7, "ppid": 1, "t": 1, "executable": executable},
        {"k": "torch", "version": "2.13.0", "environment": LIMIT if limit is None else limit},
        settings,
        {"k": "steps", "first": 0, "n": 3, "t": 30, "wall_us": 10},
        recordings.ops_window(replays=[MATMUL]),
    ]
    (directory / "run.json").write_text('{"schema": "perfdoctor.run/2"}')
    (directory / "process-7-1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return RunDirectory(directory)


def _timed(run: RunDirectory) -> dict[str, Any]:
    time_vector_extensions(run, os.environ)
    return json.loads(run.timings_file.read_text())


def test_operators_are_timed_with_the_cap_and_without(tmp_path: Path) -> None:
    timed = _timed(_run(tmp_path, _interpreter(tmp_path, ANSWERS)))
    assert dict(timed["variables"]) == LIMIT
    (op,) = timed["timings"]
    assert (op["name"], op["shapes"], op["dtype"]) == ("gelu", "[64, 64]", "float32")
    assert (op["limited_milliseconds"], op["full_milliseconds"], op["calls_per_step"]) == (0.2, 0.1, 2)
    assert timed["full_capability"] == "AVX2"
    assert timed["rounds"] >= 1


@pytest.mark.parametrize("changes", [{"limit": {}}, {"devices": ["cuda:0"]}])
def test_nothing_is_started_without_a_cap_or_on_a_gpu(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = _run(tmp_path, "/nonexistent", **changes)
    time_vector_extensions(run, os.environ)
    assert not run.timings_file.exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(1)", "failed"),
        ("print('Traceback')", "failed"),
        (ANSWERS.replace('"DEFAULT"', '"AVX512"'), "did not compute with"),
    ],
)
def test_what_goes_wrong_is_said_in_the_file(tmp_path: Path, body: str, why: str) -> None:
    assert why in _timed(_run(tmp_path, _interpreter(tmp_path, body)))["missing"]


def test_an_interpreter_that_is_gone_is_said_too(tmp_path: Path) -> None:
    assert "failed" in _timed(_run(tmp_path, "/nonexistent/python"))["missing"]


def test_a_directory_that_is_no_recording_is_left_alone(tmp_path: Path) -> None:
    time_vector_extensions(RunDirectory(tmp_path), os.environ)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.e2e
def test_a_real_interpreter_times_a_real_operator(tmp_path: Path) -> None:
    timed = _timed(_run(tmp_path, sys.executable))
    (op,) = timed["timings"]
    assert op["limited_milliseconds"] > 0
    assert op["full_milliseconds"] > 0
