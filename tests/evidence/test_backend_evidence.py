from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import recorded, settings, steps, torch, write, write_run

from perfdoctor.evidence import backend
from perfdoctor.evidence.model import Backend, CapTimings, Missing
from perfdoctor.evidence.places import Places
from perfdoctor.recording.model import CapTimings as CapTimingsRecord
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import read

NOWHERE = Places({}, "")
LIBRARIES = {"blas": "mkl", "mkl": True, "onednn": True, "acl": False, "xpu": False, "mps": False, "arch_list": []}
TIMING = {
    "name": "aten::gelu",
    "dtype": "float32",
    "shapes": [[64, 4096]],
    "calls": 4,
    "total_us": 900,
    "capped_us": 8000.0,
    "free_us": 2000.0,
}


def _process(directory: Path, *more: dict[str, Any], **changes: Any) -> ProcessRecording:
    return recorded(directory, torch(), settings(**{"libraries": LIBRARIES, **changes}), *more, steps(10_000, 20))


def _built(process: ProcessRecording, timings: CapTimingsRecord | None = None) -> Backend:
    seen = backend.build(process, NOWHERE, timings)
    assert isinstance(seen, Backend)
    return seen


def test_an_older_recording_does_not_say(tmp_path: Path) -> None:
    process = recorded(tmp_path, torch(), settings(), steps(10_000, 20))
    assert isinstance(backend.build(process, NOWHERE, None), Missing)


@pytest.mark.parametrize(("outside", "inside", "on"), [(True, None, True), (True, False, False), (False, None, False)])
def test_onednn_counts_as_seen_in_the_forward(tmp_path: Path, outside: bool, inside: bool | None, on: bool) -> None:
    assert _built(_process(tmp_path, mkldnn=outside, onednn_in_forward=inside)).onednn_enabled is on


def test_parameters_are_counted_by_device(tmp_path: Path) -> None:
    parameters = {"devices": ["cpu", "cuda:0"], "device_elements": {"cpu": 10, "cuda:0": 90}}
    assert _built(_process(tmp_path, parameters=parameters)).devices == ("cuda:0", "cpu")
    old = {"devices": ["cpu"]}
    assert _built(_process(tmp_path, parameters=old)).parameters_by_device == (("cpu", 0),)


def test_a_cap_counts_as_it_was_when_torch_was_imported(tmp_path: Path) -> None:
    process = recorded(
        tmp_path,
        torch(environment={"ATEN_CPU_CAPABILITY": "default"}),
        settings(libraries=LIBRARIES, environment={"ONEDNN_MAX_CPU_ISA": "SSE41", "CUDA_VISIBLE_DEVICES": "1"}),
    )
    assert dict(_built(process).variables) == {"ATEN_CPU_CAPABILITY": "default", "CUDA_VISIBLE_DEVICES": "1"}


def test_timings_of_onednn_become_milliseconds(tmp_path: Path) -> None:
    timing = {
        "name": "aten::convolution",
        "dtype": "float32",
        "shapes": [[1, 2], []],
        "native_us": 3000,
        "onednn_us": 1000,
    }
    records = {"k": "window", "name": "ops"}, {"k": "timings", "onednn": [timing]}
    (found,) = _built(_process(tmp_path, *records)).onednn_timings
    assert (found.name, found.shapes) == ("convolution", "[1, 2]")
    assert (found.native_milliseconds, found.onednn_milliseconds) == (3.0, 1.0)


# ---------------------------------------------------------------------------------------------------------
# timings.json


def _read(directory: Path, text: str | None) -> CapTimingsRecord | None:
    write(directory, torch(), steps(10_000, 20))
    run = write_run(directory)
    if text is not None:
        run.timings_file.write_text(text)
    return read(run).cap_timings


def test_timings_of_a_cap_are_read_back(tmp_path: Path) -> None:
    text = json.dumps({"variables": {"ATEN_CPU_CAPABILITY": "default"}, "ops": [TIMING], "rounds": 5, "later": 1})
    timings = _built(_process(tmp_path), _read(tmp_path, text)).cap_timings
    assert isinstance(timings, CapTimings)
    assert timings.variables == (("ATEN_CPU_CAPABILITY", "default"),)
    assert (timings.timings[0].name, timings.timings[0].capped_milliseconds) == ("gelu", 8.0)


def test_without_the_file_there_is_no_cap(tmp_path: Path) -> None:
    assert _read(tmp_path, None) is None
    assert "no variable" in str(_built(_process(tmp_path)).cap_timings)


@pytest.mark.parametrize("text", ["", "[]", "{cut", '{"missing": "the interpreter failed"}', '{"ops": []}'])
def test_a_file_without_timings_says_why(tmp_path: Path, text: str) -> None:
    timings = _built(_process(tmp_path), _read(tmp_path, text)).cap_timings
    assert isinstance(timings, Missing)
    assert "not timed" in timings.reason
