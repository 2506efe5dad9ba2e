"""`--trace`: a file for each rank, and a clear word where there is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import recordings as r
from diagnosis_samples import two_findings

from perfdoctor.commands import traces
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.directory import RunDirectory

RAW = {"traceEvents": [{"ph": "X", "name": "aten::mm", "pid": 100, "tid": 100, "ts": 1.0, "dur": 2.0}]}


def kept(pid: int = r.PID) -> r.Record:
    return {
        "file": f"trace-{pid}-1.json",
        "clock_ns": 0,
        "thread": pid,
        "steps": [{"step": 12, "start_ns": 1000, "end_ns": 9000}],
        "parts": [{"part": "forward", "start_ns": 1000, "end_ns": 9000}],
        "layers": [{"name": "head", "kind": "Linear", "called_at": 1, "made_at": -1}],
    }


def rank(directory: Path, *window: r.Record, number: int = 0) -> None:
    """A process of that rank, with its raw trace."""
    pid = r.PID + number
    settings = r.settings(rank=number, world_size=2)
    r.write(directory, r.process(pid), r.torch(), r.site(1, 9), settings, r.steps(10_000, 30), *window, pid=pid)
    (directory / f"trace-{pid}-1.json").write_text(json.dumps(RAW))


def with_trace(trace: Any) -> r.Record:
    return {**r.ops_window(), "trace": trace}


def written(run: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said."""
    traces.write(file, r.write_run(run), two_findings())
    return capsys.readouterr().err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def test_one_rank_gets_the_file_by_its_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank(run, with_trace(kept()))
    assert "the trace of 1 step is in" in written(run, tmp_path / "t.json", capsys)
    names = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert names >= {"aten::mm", "ProfilerStep#12", "forward pass"}


def test_several_ranks_get_a_file_each(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 1):
        rank(run, with_trace(kept(r.PID + number)), number=number)
    written(run, tmp_path / "t.json.gz", capsys)
    for number in (0, 1):
        assert json.loads(gzip.decompress((tmp_path / f"t.rank{number}.json.gz").read_bytes()))["traceEvents"]
    assert not (tmp_path / "t.json.gz").exists()


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ((), "the operator window was not reached; let the job run for 20 steps or more"),
        ((r.no_window("ops", "the job runs a profiler of its own"),), "the job runs a profiler of its own"),
        ((r.ops_window(),), "no trace was kept; record one with `perfdoctor check --trace FILE`"),
        ((with_trace({"missing": "torch could not write it: disk full"}),), "torch could not write it: disk full"),
        ((with_trace({**kept(), "file": "gone.json"}),), "gone.json is not in the recording any more"),
        ((with_trace({**kept(), "file": "../outside.json"}),), "outside.json is not in the recording any more"),
        ((with_trace({**kept(), "file": "run.json"}),), "run.json cannot be read: it holds no events"),
    ],
)
def test_where_there_is_none_it_says_why(
    window: tuple[r.Record, ...], why: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank(run, *window)
    (tmp_path / "outside.json").write_text(json.dumps(RAW))
    assert why in written(run, tmp_path / "t.json", capsys)
    assert not (tmp_path / "t.json").exists()


def test_a_job_without_a_step_has_none(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the job took no step" in written(run, tmp_path / "t.json", capsys)


@pytest.mark.parametrize("name", ["t.txt", "t.gz", "json", "nowhere/t.json", "."])
def test_a_name_that_no_trace_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PerfdoctorError):
        traces.require_writable(tmp_path / name)


def test_a_disk_that_is_full_by_then_is_an_error_with_advice(run: Path, tmp_path: Path) -> None:
    rank(run, with_trace(kept()))
    with pytest.raises(PerfdoctorError, match="cannot write") as error:
        traces.write(tmp_path / "gone" / "t.json", RunDirectory(r.write_run(run).path), two_findings())
    assert "perfdoctor report" in error.value.advice
