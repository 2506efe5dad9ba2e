from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.injected._perfdoctor_probe.records import VERSION
from perfdoctor.recording.host import HostFault, HostSample
from perfdoctor.recording.monitor import read_host_file, read_machine_file

FORMAT = {"k": "format", "version": VERSION}
SAMPLE: dict[str, Any] = {
    "k": "host",
    "monotonic_ns": 2_000_000_000,
    "interval_ns": 500_000_000,
    "job": {
        "cpus": 1.75,
        "rss_bytes": 1000,
        "run_ns": 700,
        "run_delay_ns": 300,
        "busy": [{"pid": 8, "command": "python3", "cpus": 0.9, "awake": True}],
    },
    "cpus": {"busy": 1.9, "idle": 0.1, "iowait": 0.0, "steal": 0.0},
    "throttling": {"group": "/g", "periods": 5, "throttled_periods": 1, "throttled_seconds": 0.01},
    "pressure_share": 0.5,
    "memory_pressure_share": 0.25,
    "memory_available_bytes": 4096,
    "swap_in_bytes": 0,
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
            "processes": [{"pid": 7, "gpu": 0, "memory_bytes": None}],
            "temperature_c": 61,
        }
    ],
    "job_gpu_pids": [7],
    "monitor_cpus": 0.01,
    "clock_mhz": 3000.0,
}
MACHINE: dict[str, Any] = {
    "version": VERSION,
    "cpu_model": "Some CPU",
    "logical_cpus": 4,
    "physical_cores": None,
    "affinity_cpus": 4,
    "quota_cpus": None,
    "memory_bytes": 8,
    "kernel": "6.18.0",
    "page_fault_ns": None,
}


def _file(tmp_path: Path, *records: object, tail: str = "") -> Path:
    file = tmp_path / "host.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in (FORMAT, *records)) + tail)
    return file


def _jsonable(sample: HostSample) -> object:
    return {"k": "host", **json.loads(json.dumps(asdict(sample)))}


def test_a_sample_is_read_field_by_field(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, SAMPLE))
    assert [_jsonable(sample) for sample in recording.samples] == [SAMPLE]
    assert recording.faults == ()
    assert recording.notes == ()


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


@pytest.mark.parametrize(
    "damage", [{"interval_ns": None}, {"cpus": 3}, {"job": {"cpus": "many"}}, {"job_gpu_pids": ["7"]}]
)
def test_a_sample_that_cannot_be_decoded_is_passed_over_and_noted(tmp_path: Path, damage: dict[str, Any]) -> None:
    recording = read_host_file(_file(tmp_path, {**SAMPLE, **damage}, SAMPLE))
    assert [_jsonable(sample) for sample in recording.samples] == [SAMPLE]
    assert recording.notes == ("host.jsonl: 1 line(s) of kind 'host' that cannot be decoded",)


def test_a_source_that_failed_is_none(tmp_path: Path) -> None:
    blind = dict.fromkeys(SAMPLE.keys() - {"k", "monotonic_ns", "interval_ns", "job_gpu_pids", "monitor_cpus"})
    (sample,) = read_host_file(_file(tmp_path, {**SAMPLE, **blind})).samples
    assert sample.job is sample.cpus is sample.gpus is sample.neighbours is sample.throttling is None


@pytest.mark.parametrize("first", [SAMPLE, {**FORMAT, "version": VERSION - 1}, {**FORMAT, "version": VERSION + 1}])
def test_samples_of_another_version_are_refused(tmp_path: Path, first: dict[str, Any]) -> None:
    file = tmp_path / "host.jsonl"
    file.write_text(json.dumps(first) + "\n")
    with pytest.raises(PerfdoctorError, match=r"host\.jsonl cannot be used: another version"):
        read_host_file(file)


def test_a_file_in_which_nothing_was_written_is_an_empty_recording(tmp_path: Path) -> None:
    (tmp_path / "host.jsonl").touch()
    assert read_host_file(tmp_path / "host.jsonl").samples == ()


def test_faults_are_kept(tmp_path: Path) -> None:
    recording = read_host_file(_file(tmp_path, {"k": "fault", "source": "gpus", "error": "gone"}))
    assert recording.faults == (HostFault("gpus", "gone"),)


def test_an_absent_file_is_an_empty_recording_with_a_note(tmp_path: Path) -> None:
    recording = read_host_file(tmp_path / "host.jsonl")
    assert recording.samples == ()
    assert "cannot be read" in recording.notes[0]


def _unusable(tmp_path: Path, content: str | None) -> str:
    """What reading such a machine.json says."""
    file = tmp_path / "machine.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PerfdoctorError) as raised:
        read_machine_file(file)
    assert raised.value.slug == "recording-machine"
    assert raised.value.advice
    return raised.value.message.removeprefix(f"{file} cannot be used: ")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        json.dumps(MACHINE)[:-9],
        json.dumps({"version": VERSION}),
        json.dumps({**MACHINE, "logical_cpus": "2"}),
    ],
)
def test_a_damaged_machine_file_is_an_error_with_advice(tmp_path: Path, content: str) -> None:
    assert _unusable(tmp_path, content) == "it is damaged"


def test_without_a_machine_file_there_is_no_recording(tmp_path: Path) -> None:
    assert _unusable(tmp_path, None) == "No such file or directory"


@pytest.mark.parametrize("version", [None, VERSION - 1, VERSION + 1])
def test_a_machine_of_another_version_is_refused(tmp_path: Path, version: int | None) -> None:
    content = json.dumps({**MACHINE, "version": version})
    assert _unusable(tmp_path, content) == "another version of perfdoctor wrote it"


def test_a_machine_with_the_least_said_is_read(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({**MACHINE, "later": 1}))
    machine = read_machine_file(file)
    assert machine.usable_cpus == 4
    assert machine.quota_cpus is None
    assert machine.gpus == ()
    assert machine.cuda_driver is None
