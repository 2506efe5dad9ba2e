from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import recordings

from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.recording.base import Site
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import ProcessFile, read

HEADER = {"k": "process", "version": 2, "pid": 7, "ppid": 1, "t": 1_000, "python": "3.11.7"}
STEPS = {"k": "steps", "first": 0, "n": 3, "t": 90_000, "wall_us": [10, 20, 30], "micro": 1}


def _line(record: object) -> str:
    return json.dumps(record) + "\n"


def _write(directory: Path, *records: object, tail: str = "", name: str = "process-7-1000.jsonl") -> Path:
    path = directory / name
    path.write_text("".join(_line(record) for record in records) + tail)
    return path


def _recorded(directory: Path, *records: object, tail: str = "") -> ProcessRecording:
    file = ProcessFile(_write(directory, *records, tail=tail))
    file.refresh()
    recording = file.recording()
    assert recording is not None
    return recording


def _run(directory: Path, **facts: Any) -> RunDirectory:
    (directory / "run.json").write_text(json.dumps({"schema": "perfdoctor.run/2", **facts}))
    return RunDirectory(directory)


def _refused(directory: RunDirectory) -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught:
        read(directory)
    assert caught.value.advice
    assert caught.value.exit_code is Exit.USAGE
    return caught.value


# ---------------------------------------------------------------------------------------------------------
# Lines


def test_a_cut_last_line_is_left_out_and_noted(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, HEADER, STEPS, tail='{"k":"steps","first":3,"n":2,"wall_')
    assert len(recording.steps) == 3
    assert recording.problems == ("process-7-1000.jsonl: the last line is cut",)


@pytest.mark.parametrize("line", ["not json", "[1, 2]", "3", "null", '{"no": "kind"}', '"text"', "\x00\x00"])
def test_a_damaged_line_is_counted_and_the_rest_is_read(tmp_path: Path, line: str) -> None:
    path = _write(tmp_path, HEADER, STEPS)
    path.write_text(path.read_text() + f"{line}\n{line}\n" + _line({"k": "end", "tracked_objects": 9}))
    file = ProcessFile(path)
    file.refresh()
    recording = file.recording()
    assert recording is not None
    assert recording.end is not None
    assert recording.problems == ("process-7-1000.jsonl: a line that is not a record (2)",)


def test_unknown_kinds_and_fields_are_ignored(tmp_path: Path) -> None:
    later = {"k": "hologram", "version": 1}
    recording = _recorded(tmp_path, {**HEADER, "mood": "good"}, later, {**STEPS, "joules": [1, 2, 3]})
    assert recording.header.pid == 7
    assert recording.problems == ()
    assert len(recording.steps) == 3


def test_a_record_that_is_not_what_its_type_declares_is_counted_by_kind(tmp_path: Path) -> None:
    faults = [{"k": "fault", "hook": "loader", "error": "x"}, {"k": "fault", "hook": 3}, {"k": "fault"}]
    steps = [{**STEPS, "wall_us": [1, 2]}, {**STEPS, "wall_us": ["a", "b", "c"]}, {**STEPS, "n": "three"}]
    recording = _recorded(tmp_path, HEADER, STEPS, *faults, *steps)
    assert [fault.hook for fault in recording.faults] == ["loader"]
    assert len(recording.steps) == 3
    assert recording.problems == (
        "process-7-1000.jsonl: 2 records of kind 'fault' could not be read",
        "process-7-1000.jsonl: 3 records of kind 'steps' could not be read",
    )


def test_a_place_is_told_by_its_number_and_relative_to_where_the_process_is(tmp_path: Path) -> None:
    call = {"k": "call", "kind": "save", "count": 1, "us": 5, "step": 2}
    site = {"k": "site", "id": 0, "file": "/job/train.py", "line": 5, "function": "main"}
    records = ({"k": "torch", "cwd": "/job"}, site, {**call, "site": 0}, {**call, "site": -1})
    assert [one.site for one in _recorded(tmp_path, HEADER, *records).calls] == [Site("train.py", 5, "main"), None]


# ---------------------------------------------------------------------------------------------------------
# Columns


def test_a_column_of_equal_entries_was_written_as_one_number(tmp_path: Path) -> None:
    steps = _recorded(tmp_path, HEADER, {**STEPS, "backward_us": 5, "micro": [1, 2, 1]}).steps
    assert steps["backward_us"].tolist() == [5, 5, 5]
    assert steps["micro"].tolist() == [1, 2, 1]


def test_a_column_that_the_file_lacks_is_zero(tmp_path: Path) -> None:
    assert _recorded(tmp_path, HEADER, STEPS).steps["gc_us"].tolist() == [0, 0, 0]


def test_a_loader_that_the_file_lacks_is_not_known(tmp_path: Path) -> None:
    """0 is the number of the first."""
    made = {"k": "fetches", "n": 2, "getitem_us": [7, 9]}
    assert _recorded(tmp_path, HEADER, made).fetches["loader"].tolist() == [-1, -1]


def test_blocks_of_steps_are_joined_with_numbers_ends_and_marks(tmp_path: Path) -> None:
    more = {"k": "steps", "first": 3, "n": 2, "t": 300_000, "wall_us": 50, "marked": [4]}
    steps = _recorded(tmp_path, HEADER, STEPS, more).steps
    assert steps["step"].tolist() == [0, 1, 2, 3, 4]
    assert steps["wall_us"].tolist() == [10, 20, 30, 50, 50]
    assert steps["end_ns"].tolist() == [40_000, 60_000, 90_000, 250_000, 300_000]
    assert steps["marked"].tolist() == [0, 0, 0, 0, 1]


def test_a_mark_may_arrive_with_a_later_block(tmp_path: Path) -> None:
    more = {"k": "steps", "first": 3, "n": 1, "t": 300_000, "wall_us": 50, "marked": [2]}
    assert _recorded(tmp_path, HEADER, STEPS, more).steps["marked"].tolist() == [0, 0, 1, 0]


def _boundary(kind: str, step: int) -> dict[str, Any]:
    return {"k": "boundary", "kind": kind, "step": step}


def test_a_kind_announced_again_has_become_longer_and_what_it_was_are_single_passes(tmp_path: Path) -> None:
    later = {**STEPS, "first": 3}
    announced = _boundary("backward", 0), STEPS, _boundary("backward", 3), later
    assert _recorded(tmp_path, HEADER, *announced).steps["boundary"].tolist() == [2, 2, 2, 3, 3, 3]


def test_steps_end_at_the_boundary_that_was_announced_before_them(tmp_path: Path) -> None:
    later = {**STEPS, "first": 3, "t": 200_000}
    records = (HEADER, _boundary("batch", 0), STEPS, _boundary("optimizer", 3), later)
    assert _recorded(tmp_path, *records).steps["boundary"].tolist() == [1, 1, 1, 0, 0, 0]


def test_the_announcement_says_from_which_step_on_it_holds_also_within_a_block(tmp_path: Path) -> None:
    announced = _boundary("forward", 0), _boundary("optimizer", 2)
    assert _recorded(tmp_path, HEADER, *announced, STEPS).steps["boundary"].tolist() == [2, 2, 0]


def test_a_process_without_steps_has_empty_columns(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, HEADER)
    assert len(recording.steps) == len(recording.batches) == len(recording.fetches) == 0
    assert recording.steps["wall_us"].tolist() == []
    assert recording.role == "helper"


# ---------------------------------------------------------------------------------------------------------
# Files that grow


def test_a_file_that_grows_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    path = _write(tmp_path, HEADER, STEPS)
    file = ProcessFile(path)
    file.refresh()
    assert file.step_count == 3
    more = _line({"k": "steps", "first": 3, "n": 2, "t": 300_000, "wall_us": 50})
    with path.open("a") as job:
        job.write(more[:20])
    file.refresh()
    assert file.step_count == 3
    cut = file.recording()
    assert cut is not None and cut.problems  # cut for now
    with path.open("a") as job:
        job.write(more[20:])
    file.refresh()
    assert file.step_count == 5
    whole = file.recording()
    assert whole is not None and whole.problems == ()
    assert whole.size_bytes == path.stat().st_size


def test_a_character_cut_in_two_is_whole_at_the_next_refresh(tmp_path: Path) -> None:
    site = {"k": "site", "id": 1, "file": "traîn.py", "line": 3, "function": "main"}
    line = json.dumps(site, ensure_ascii=False).encode() + b"\n"
    half = line.index("î".encode()) + 1
    path = _write(tmp_path, HEADER)
    file = ProcessFile(path)
    call = _line({"k": "call", "kind": "save", "count": 1, "us": 5, "step": 2, "site": 1}).encode()
    for part in (line[:half], line[half:], call):
        with path.open("ab") as job:
            job.write(part)
        file.refresh()
    recording = file.recording()
    assert recording is not None
    assert recording.calls[0].site == Site("traîn.py", 3, "main")


def test_refreshing_again_changes_nothing(tmp_path: Path) -> None:
    file = ProcessFile(_write(tmp_path, HEADER, STEPS))
    file.refresh()
    file.refresh()
    assert file.step_count == 3


def test_an_empty_file_has_no_recording_yet(tmp_path: Path) -> None:
    file = ProcessFile(_write(tmp_path))
    file.refresh()
    assert file.recording() is None
    assert file.step_count == 0


def test_samples_per_step_follow_the_sizes_of_the_first_batches(tmp_path: Path) -> None:
    seen = {"k": "batch", "loader": 1, "samples": 32}
    drawn = {"k": "batches", "n": 6, "loader": 1, "step": [0, 0, 1, 1, 2, 2], "wait_us": 0}
    file = ProcessFile(_write(tmp_path, HEADER, STEPS, seen, drawn))
    file.refresh()
    assert file.samples_per_step() == pytest.approx(64.0)
    without = ProcessFile(_write(tmp_path, HEADER, STEPS))
    without.refresh()
    assert without.samples_per_step() is None


# ---------------------------------------------------------------------------------------------------------
# Directories


def test_a_run_directory_is_read_whole(tmp_path: Path) -> None:
    _write(tmp_path, HEADER, STEPS)
    _write(tmp_path, {**HEADER, "pid": 8}, {"k": "worker", "worker": 0, "ppid": 7}, name="process-8-2000.jsonl")
    (tmp_path / "job.out").write_text("the job's own words\n")
    recording = read(_run(tmp_path, command=["python", "train.py"], end="stopped", novelty=3))
    assert [process.role for process in recording.processes] == ["rank", "worker"]
    assert recording.facts.command == ("python", "train.py")
    assert recording.facts.end == "stopped"
    assert recording.problems == ()


def test_a_process_that_wrote_no_whole_line_is_noted(tmp_path: Path) -> None:
    _write(tmp_path, tail='{"k":"proc')
    recording = read(_run(tmp_path))
    assert recording.processes == ()
    assert recording.problems == ("process-7-1000.jsonl: no complete record",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_noted(tmp_path: Path) -> None:
    _write(tmp_path, HEADER).chmod(0)
    assert "Permission denied" in read(_run(tmp_path)).problems[0]


def test_a_directory_in_the_place_of_a_file_is_noted(tmp_path: Path) -> None:
    (tmp_path / "process-7-1000.jsonl").mkdir()
    assert "Is a directory" in read(_run(tmp_path)).problems[0]


@pytest.mark.parametrize("exists", [True, False])
def test_a_directory_without_run_json_is_no_recording(tmp_path: Path, exists: bool) -> None:
    error = _refused(RunDirectory(tmp_path if exists else tmp_path / "nowhere"))
    assert error.slug == "not-a-recording"
    assert "no run.json" in error.message


def test_a_damaged_run_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "perfdoctor.ru')
    error = _refused(RunDirectory(tmp_path))
    assert error.slug == "not-a-recording"
    assert "damaged" in error.message


@pytest.mark.parametrize("content", ["[]", '"text"', "{}", '{"schema": "wandb/1"}', '{"schema": 3}'])
def test_a_run_json_of_another_program_is_foreign(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    assert _refused(RunDirectory(tmp_path)).slug == "foreign-recording"


def test_a_newer_run_is_refused(tmp_path: Path) -> None:
    error = _refused(_run(tmp_path, schema="perfdoctor.run/3"))
    assert error.slug == "newer-recording"
    assert "upgrade" in error.advice


def test_an_older_run_is_refused(tmp_path: Path) -> None:
    error = _refused(_run(tmp_path, schema="perfdoctor.run/1"))
    assert error.slug == "older-recording"
    assert "record the job again" in error.advice


@pytest.mark.parametrize("schema", ["perfdoctor.run/", "perfdoctor.run/x", "perfdoctor.run/1.5"])
def test_a_run_of_no_known_version_is_foreign(tmp_path: Path, schema: str) -> None:
    assert _refused(_run(tmp_path, schema=schema)).slug == "foreign-recording"


def test_a_newer_probe_file_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, {**HEADER, "version": 3}, STEPS)
    error = _refused(_run(tmp_path))
    assert error.slug == "newer-recording"
    assert "process-7-1000.jsonl" in error.message


@pytest.mark.parametrize("version", [1, 0, None, "two"])
def test_an_older_one_is_refused(tmp_path: Path, version: object) -> None:
    _write(tmp_path, {**HEADER, "version": version}, STEPS)
    assert _refused(_run(tmp_path)).slug == "older-recording"


# ---------------------------------------------------------------------------------------------------------
# Ranks


@pytest.mark.parametrize(
    ("environment", "rank", "world"),
    [({}, 0, 1), ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8), ({"RANK": "", "WORLD_SIZE": ""}, 0, 1)],
)
def test_the_rank_is_that_of_the_launchers_environment(
    tmp_path: Path, environment: dict[str, str], rank: int, world: int
) -> None:
    recording = _recorded(tmp_path, HEADER, {"k": "torch", "environment": environment}, STEPS)
    assert (recording.rank, recording.world_size) == (rank, world)


def test_the_environment_of_the_second_step_is_newer_than_that_of_the_import(tmp_path: Path) -> None:
    """Spawned ranks set theirs after importing torch."""
    settings = recordings.settings(environment={"RANK": "1"})
    records = (HEADER, {"k": "torch", "environment": {}}, settings, STEPS)
    assert _recorded(tmp_path, *records).rank == 1


@pytest.mark.parametrize("value", ["gold", "1.5"])
def test_a_rank_that_is_no_number_is_none(tmp_path: Path, value: str) -> None:
    recording = _recorded(tmp_path, HEADER, {"k": "torch", "environment": {"RANK": value, "WORLD_SIZE": value}}, STEPS)
    assert (recording.rank, recording.world_size) == (0, 1)


def test_marks_on_the_device_come_as_columns_with_what_was_left_out(tmp_path: Path) -> None:
    first = {"k": "device", "n": 2, "step": [7, 14], "total_us": [10, 20], "left_out": {"late": 1}}
    recording = _recorded(
        tmp_path, HEADER, STEPS, first, {"k": "device", "n": 0, "left_out": {"late": 2, "captured": 1}}
    )
    assert recording.device["step"].tolist() == [7, 14]
    assert recording.device["total_us"].tolist() == [10, 20]
    assert recording.device["idle_most_us"].tolist() == [0, 0]
    assert recording.device_left_out == {"late": 3, "captured": 1}


def test_a_recording_without_marks_has_none(tmp_path: Path) -> None:
    recording = _recorded(tmp_path, HEADER, STEPS)
    assert len(recording.device) == 0
    assert recording.device_left_out == {}
