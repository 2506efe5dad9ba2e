"""What was read once, joined with what other records say: libraries and devices, cuDNN, limiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import recorded, settings, steps, torch, write, write_run

from perfdoctor.evidence.model import Backend, Convolution, Cudnn, Missing, ShapeVariety, VectorExtensionTimings
from perfdoctor.evidence.settings import backend, cudnn
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import read

CUDA = {"total_bytes": 80 << 30, "allocator": "native"}
CUDNN = {"available": True, "version": 91900, "enabled": True, "benchmark": True, "deterministic": False}
TIMING = {
    "name": "gelu",
    "dtype": "float32",
    "shapes": "[64, 4096]",
    "calls_per_step": 2.0,
    "limited_milliseconds": 8.0,
    "full_milliseconds": 2.0,
}
TIMINGS = {
    "variables": [["ATEN_CPU_CAPABILITY", "default"]],
    "timings": [TIMING],
    "rounds": 5,
    "full_capability": "AVX2",
}


def _process(directory: Path, *records: dict[str, Any], **changes: Any) -> ProcessRecording:
    return recorded(directory, torch(), settings(**changes), *records, steps(10_000, 20))


def _built(process: ProcessRecording, timings: VectorExtensionTimings | Missing | None = None) -> Backend:
    seen = backend(process, timings)
    assert isinstance(seen, Backend)
    return seen


def test_without_settings_nothing_is_known(tmp_path: Path) -> None:
    process = recorded(tmp_path, torch(), steps(10_000, 20))
    assert isinstance(backend(process, None), Missing)
    assert isinstance(cudnn(process), Missing)


def test_devices_of_parameters_and_batches_are_told(tmp_path: Path) -> None:
    batch = {"k": "batch", "loader": 1, "devices": ["cuda:0", "cpu"]}
    built = _built(_process(tmp_path, batch, backend={"parameters_by_device": [["cuda:0", 90], ["cpu", 10]]}))
    assert built.devices == ("cuda:0", "cpu")
    assert built.batch_devices == ("cpu", "cuda:0")


def test_a_cap_counts_as_it_was_when_torch_was_imported(tmp_path: Path) -> None:
    process = recorded(
        tmp_path,
        torch(environment={"ATEN_CPU_CAPABILITY": "default"}),
        settings(environment={"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "CUDA_VISIBLE_DEVICES": "1"}),
    )
    assert dict(_built(process).variables) == {"ATEN_CPU_CAPABILITY": "default", "CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize(
    ("variable", "backend", "counts"),
    [
        (("ATEN_CPU_CAPABILITY", "avx2"), {"capability": "AVX2"}, True),
        (("ATEN_CPU_CAPABILITY", "default"), {"capability": "AVX512"}, False),  # torch had chosen its kernels
        (("MKL_CBWR", "COMPATIBLE"), {"mkl_branch": 3}, True),
        (("MKL_CBWR", "COMPATIBLE"), {"mkl_branch": 1}, False),  # MKL had multiplied before
        (("MKL_CBWR", "COMPATIBLE"), {}, False),
        (("ONEDNN_MAX_CPU_ISA", "SSE41"), {}, True),
    ],
)
def test_a_cap_that_the_job_sets_counts_where_its_library_has_read_it(
    tmp_path: Path, variable: tuple[str, str], backend: dict[str, Any], counts: bool
) -> None:
    process = recorded(tmp_path, torch(), settings(backend=backend, environment=dict([variable])))
    assert dict(_built(process).variables) == (dict([variable]) if counts else {})


def test_timings_of_onednn_are_those_taken_at_the_end(tmp_path: Path) -> None:
    timing = {"name": "convolution", "dtype": "float32", "shapes": "[1, 2]"}
    record = {"k": "timings", "onednn": [{**timing, "native_milliseconds": 3.0, "onednn_milliseconds": 1.0}]}
    (found,) = _built(_process(tmp_path, record)).onednn_timings
    assert (found.name, found.shapes) == ("convolution", "[1, 2]")
    assert (found.native_milliseconds, found.onednn_milliseconds) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("at_step", "at_batch", "between"),
    [(True, None, True), (False, None, False), (False, False, False), (False, True, True)],
)
def test_a_switch_around_the_whole_step_is_told_by_the_next_batch(
    tmp_path: Path, at_step: bool, at_batch: bool | None, between: bool
) -> None:
    batch = {"k": "batch", "loader": 1} | ({} if at_batch is None else {"onednn": at_batch})
    built = _built(_process(tmp_path, batch, backend={"onednn_between_steps": at_step}))
    assert built.onednn_between_steps is between


# ---------------------------------------------------------------------------------------------------------
# cuDNN


def test_a_job_without_cuda_has_no_cudnn(tmp_path: Path) -> None:
    seen = cudnn(_process(tmp_path))
    assert isinstance(seen, Missing)
    assert "does not use CUDA" in seen.reason


def test_settings_are_read_with_what_was_seen_in_the_forward(tmp_path: Path) -> None:
    seen = cudnn(_process(tmp_path, cuda=CUDA, cudnn={**CUDNN, "enabled_in_forward": False}))
    assert isinstance(seen, Cudnn)
    assert (seen.available, seen.version, seen.enabled, seen.enabled_in_forward) == (True, 91900, True, False)
    assert (seen.benchmark, seen.deterministic, seen.error) == (True, False, "")
    assert isinstance(seen.shapes, Missing)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(8, 1), (16, 2)], None),
        ([(10, 2), (50, 3), (100, 3)], ShapeVariety(100, 3, 0)),
        ([(10, 9), (50, 40), (100, 75)], ShapeVariety(100, 75, 35)),
        ([(100, 75)], ShapeVariety(100, 75, 0)),  # all in one record: nothing is known of when
    ],
)
def test_shapes_are_late_when_first_seen_in_the_second_half(
    tmp_path: Path, seen: list[tuple[int, int]], expected: ShapeVariety | None
) -> None:
    records = [{"k": "shapes", "step": n, "sampled": n, "distinct": distinct} for n, distinct in seen]
    found = cudnn(_process(tmp_path, *records, cuda=CUDA, cudnn=CUDNN))
    assert isinstance(found, Cudnn)
    assert found.shapes == expected if expected else isinstance(found.shapes, Missing)


@pytest.mark.parametrize(
    ("kernel", "chosen", "native"),
    [
        ("slow_conv_dilated2d", "SlowDilated2d", True),
        ("thnn_conv2d", "Mkldnn", True),
        ("cudnn_convolution", "Cudnn", False),
        ("_conv_depthwise2d", "CudaDepthwise2d", False),
        ("", "Slow3d", True),
        ("", "Miopen", False),
        ("", "", False),
    ],
)
def test_a_convolution_is_native_by_what_ran_and_else_by_what_torch_chose(
    kernel: str, chosen: str, native: bool
) -> None:
    shapes = ((8, 3, 32, 32), (16, 3, 3, 3))
    found = Convolution(kernel, "", "stem", "Conv2d", "float32", *shapes, False, 1.0, 4.0, chosen)
    assert found.native is native
    assert found.size == "8 x 3 x 32 x 32 by 16 x 3 x 3 x 3"


# ---------------------------------------------------------------------------------------------------------
# timings.json


def _read(directory: Path, text: str | None) -> VectorExtensionTimings | Missing | None:
    write(directory, torch(), steps(10_000, 20))
    run = write_run(directory)
    if text is not None:
        run.timings_file.write_text(text)
    return read(run).vector_extension_timings


def test_timings_of_a_cap_are_read_back(tmp_path: Path) -> None:
    timings = _built(_process(tmp_path), _read(tmp_path, json.dumps({**TIMINGS, "later": 1}))).vector_extension_timings
    assert isinstance(timings, VectorExtensionTimings)
    assert timings.variables == (("ATEN_CPU_CAPABILITY", "default"),)
    assert (timings.timings[0].name, timings.timings[0].limited_milliseconds) == ("gelu", 8.0)


def test_without_the_file_there_is_no_cap(tmp_path: Path) -> None:
    assert _read(tmp_path, None) is None
    assert "no variable" in str(_built(_process(tmp_path)).vector_extension_timings)


@pytest.mark.parametrize(
    "text", ["", "[]", "{cut", '{"missing": "the interpreter failed"}', json.dumps({**TIMINGS, "timings": []})]
)
def test_a_file_without_timings_says_why(tmp_path: Path, text: str) -> None:
    timings = _built(_process(tmp_path), _read(tmp_path, text)).vector_extension_timings
    assert isinstance(timings, Missing)
    assert "not timed" in timings.reason
