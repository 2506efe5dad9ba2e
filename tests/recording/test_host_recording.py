from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.monitor.machine import MachineReading
from perfdoctor.monitor.sources import HostReading
from perfdoctor.recording.host import HostFault, HostSample, read_host_file
from perfdoctor.recording.machine import MachineRecord, read_machine_file

SAMPLE: dict[str, Any] = {
    "k": "host",
    "wall_ns": 1_700_000_000_000_000_000,
    "monotonic_ns": 2_000_000_000,
    "interval_ns": 500_000_000,
    "job": {
        "processes": 3,
        "threads": 12,
        "user_cpus": 1.5,
        "system_cpus": 0.25,
        "rss_bytes": 1000,
        "read_bytes": 10,
        "written_bytes": 20,
        "disk_read_bytes": 5,
        "disk_written_bytes": 6,
        "run_ns": 700,
        "run_delay_ns": 300,
    },
    "cpus": {"busy": 1.9, "idle": 0.1, "iowait": 0.0, "steal": 0.0},
    "throttling": {"group": "/g", "periods": 5, "throttled_periods": 1, "throttled_seconds": 0.01},
    "pressure_avg10": 0.5,
    "memory_available_bytes": 4096,
    "swap_in_bytes": 0,
    "oom_kills": 0,
    "neighbours": {
        "interval_ns": 2_000_000_000,
        "top": [{"pid": 9, "command": "python3 a.py", "user": "me", "cpus": 0.5}],
    },
    "gpus": [
        {
            "index": 0,
            "utilisation": 0.9,
            "memory_used_bytes": 1,
            "sm_clock_mhz": 1410,
            "throttle_reasons": 4,
            "processes": [{"pid": 7, "memory_bytes": None}],
        }
    ],
    "job_gpu_pids": [7],
    "own_cpus": 0.01,
    "sample_cpu_ns": 2_000_000,
    "memory_pressure_avg10": 0.25,
}


def _file(tmp_path: Path, *records: object, tail: str = "") -> Path:
    file = tmp_path / "host.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return file


def _jsonable(sample: HostSample) -> object:
    return {"k": "host", **json.loads(json.dumps(asdict(sample)))}


def test_a_sample_is_read_field_by_field(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, SAMPLE))
    assert [_jsonable(sample) for sample in recording.samples] == [SAMPLE]
    assert recording.faults == ()
    assert recording.notes == ()


def test_the_reader_knows_every_field_that_the_monitor_writes() -> None:
    assert [f.name for f in fields(HostSample)] == [f.name for f in fields(HostReading)]
    assert [f.name for f in fields(MachineRecord)] == [f.name for f in fields(MachineReading)]


def test_a_cut_last_line_is_passed_over(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, SAMPLE, tail='{"k":"host","mono'))
    assert len(recording.samples) == 1
    assert recording.notes == ("host.jsonl: 1 line(s) cut or damaged",)


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    file = _file(tmp_path, SAMPLE)
    file.write_bytes(b"\xff\xfe\n" + file.read_bytes())
    assert len(read_host_file(file).samples) == 1


def test_unknown_fields_and_kinds_are_passed_over(tmp_path: Path) -> None:
    newer = {**SAMPLE, "later": 1, "job": {**SAMPLE["job"], "later": 2}}
    recording = read_host_file(_file(tmp_path, newer, {"k": "later"}, {"k": "later"}))
    assert [_jsonable(sample) for sample in recording.samples] == [SAMPLE]
    assert recording.notes == ("host.jsonl: 2 line(s) of unknown kind 'later'",)


def test_absent_and_wrong_fields_are_none(tmp_path: Path) -> None:
    bare = {"k": "host", "monotonic_ns": 5, "interval_ns": 1, "job": {"user_cpus": "many"}, "cpus": 3}
    (sample,) = read_host_file(_file(tmp_path, bare)).samples
    assert sample.job is None
    assert sample.cpus is None
    assert sample.gpus is None
    assert sample.neighbours is None
    assert sample.throttling is None
    assert sample.job_gpu_pids == ()


def test_a_sample_without_a_time_is_passed_over(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, {"k": "host"}))
    assert recording.samples == ()
    assert "without a time" in recording.notes[0]


def test_faults_are_kept(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, {"k": "fault", "source": "gpus", "error": "gone"}))
    assert recording.faults == (HostFault("gpus", "gone"),)


def test_an_absent_file_is_an_empty_recording_with_a_note(tmp_path: Path) -> None:
    recording = read_host_file(tmp_path / "host.jsonl")
    assert recording.samples == ()
    assert "cannot be read" in recording.notes[0]


@pytest.mark.parametrize("content", [None, "", "[]", '{"cpu_model": "x"}', '{"logical_cpus": 2, "memory'])
def test_an_unusable_machine_file_is_an_error_with_advice(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "machine.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PerfdoctorError) as raised:
        read_machine_file(file)
    assert raised.value.slug == "recording-machine"
    assert str(file) in raised.value.message


def test_a_machine_with_the_least_said_is_read(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text('{"logical_cpus": 4, "memory_bytes": 8, "later": 1}')
    record = read_machine_file(file)
    assert record.affinity_cpus == 4
    assert record.quota_cpus is None
    assert record.cpu_model == "unknown"
    assert record.gpus == ()
