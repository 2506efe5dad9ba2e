"""Which files a path means."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from written_traces import new_schema, old_schema

from perfdoctor.errors import PerfdoctorError
from perfdoctor.traces.source import find, is_trace

NEW = 1_694_128_201_545
"""Milliseconds, as in the names of files."""


def put(path: Path, rank: int | None = None, seconds: float = 0) -> Path:
    content = old_schema() if rank is None else {**new_schema(), "distributedInfo": {"rank": rank, "world_size": 8}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    if seconds:
        os.utime(path, (seconds, seconds))
    return path


def names(path: Path) -> list[str]:
    return [found.name for found in find(path).paths]


def test_a_file_is_itself(tmp_path: Path) -> None:
    file = put(tmp_path / "a.json")
    assert is_trace(file)
    assert find(file).paths == (file,)
    assert find(file).note == ""


def test_a_folder_has_one_for_each_rank_in_their_order(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        put(tmp_path / f"host_{700 - rank}.{NEW + rank}.pt.trace.json", rank)
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    assert is_trace(tmp_path)
    assert names(tmp_path) == [f"host_{700 - rank}.{NEW + rank}.pt.trace.json" for rank in (0, 2, 10)]
    assert find(tmp_path).note == ""


def test_ranks_that_traces_do_not_say_are_taken_from_their_names(tmp_path: Path) -> None:
    for rank in (1, 0):
        put(tmp_path / f"trace_rank_{rank}.json")
    (tmp_path / "notes.json").write_text("[1, 2]")
    assert names(tmp_path) == ["trace_rank_0.json", "trace_rank_1.json"]


def test_of_several_traces_of_a_rank_the_newest_counts(tmp_path: Path) -> None:
    put(tmp_path / f"host_1.{NEW * 1_000_000}.pt.trace.json", 0)  # nanoseconds, as of PyTorch 2.1
    newest = put(tmp_path / f"host_2.{NEW + 5}.pt.trace.json", 0)
    put(tmp_path / f"host_3.{NEW - 5}.pt.trace.json", 0)
    assert names(tmp_path) == [newest.name]
    assert find(tmp_path).note == f"2 older traces of the same ranks in {tmp_path} left out"


def test_without_a_rank_or_a_time_the_newest_file_counts(tmp_path: Path) -> None:
    put(tmp_path / "second.json", seconds=2e9)
    put(tmp_path / "first.json", seconds=1e9)
    assert names(tmp_path) == ["second.json"]
    assert find(tmp_path).note.startswith("1 older trace of")


@pytest.mark.parametrize("named", [".", "plugins/profile", "plugins/profile/2023_09_08"])
def test_of_a_tensorboard_log_the_newest_run_counts(tmp_path: Path, named: str) -> None:
    runs = tmp_path / "plugins" / "profile"
    for run, time in (("2023_09_08", NEW + 100), ("2023_09_07", NEW)):
        for rank in (0, 1):
            put(runs / run / f"worker{rank}.{time + rank}.pt.trace.json", rank)
    assert is_trace(tmp_path / named)
    assert names(tmp_path / named) == [f"worker{rank}.{NEW + 100 + rank}.pt.trace.json" for rank in (0, 1)]
    note = find(tmp_path / named).note
    assert ("2023_09_08 is the newest of 2 runs" in note) == (named != "plugins/profile/2023_09_08")


def test_exports_of_nsight_systems_are_found_by_their_names(tmp_path: Path) -> None:
    for rank in (1, 0):
        (tmp_path / f"report_rank{rank}.sqlite").write_bytes(b"SQLite format 3\0")
    assert names(tmp_path) == ["report_rank0.sqlite", "report_rank1.sqlite"]


def test_a_recording_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    put(tmp_path / "a.pt.trace.json")
    assert not is_trace(tmp_path)


def test_what_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    assert not is_trace(tmp_path)
    assert not is_trace(tmp_path / "run-7")
    assert is_trace(tmp_path / "mistyped.pt.trace.json")
    for path, slug in ((tmp_path, "no-traces"), (tmp_path / "mistyped.json", "trace-unreadable")):
        with pytest.raises(PerfdoctorError) as refused:
            find(path)
        assert (refused.value.slug, bool(refused.value.advice)) == (slug, True)
