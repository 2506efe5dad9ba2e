"""Which library did what, from the words of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import recorded, settings, steps, torch

from perfdoctor.evidence import backend, libraries
from perfdoctor.evidence.model import Backend, Cudnn, LibraryUse, Missing, ShapeVariety
from perfdoctor.evidence.places import Places
from perfdoctor.recording.model import ProcessRecording

CONVOLUTION = {
    "kernel": "aten::thnn_conv2d",
    "choice": "Mkldnn",
    "layer": "stem",
    "module": "Conv2d",
    "dtype": "float32",
    "input": [8, 3, 32, 32],
    "weight": [16, 3, 3, 3],
    "channels_last": False,
    "calls": 2,
    "forward_us": 3000,
    "backward_us": 5000,
}
LSTM = {"kernel": "aten::lstm", "module": "LSTM", "calls": 2, "forward_us": 2000, "native_us": 900, "onednn_us": 300}
ATTENTION = {
    "made": "by hand",
    "sizes": [32, 256, 64, 128],
    "calls": 4,
    "forward_us": 6000,
    "backward_us": 4000,
    "now_us": 2500.0,
    "fused_us": 1250.0,
    "part": 0.5,
    "choice": "fused",
}
CUDA = {"name": "H100", "capability": [9, 0]}


def _process(directory: Path, *records: dict[str, Any], **fields: Any) -> ProcessRecording:
    return recorded(directory, torch(), settings(**fields), *records, steps(10_000, 20))


def _window(library: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    more = {} if library is None else {"library": library}
    return {"k": "window", "name": "ops", "steps": 2, **more, **fields}


def _used(directory: Path, library: dict[str, Any], **fields: Any) -> LibraryUse:
    use = libraries.use(_process(directory, _window(library, **fields)))
    assert isinstance(use, LibraryUse)
    return use


def test_windows_become_steps_and_milliseconds(tmp_path: Path) -> None:
    use = _used(tmp_path, {"convolutions": [CONVOLUTION], "recurrent": [LSTM], "attention": [ATTENTION]})
    (convolution,), (lstm,), (attention,) = use.convolutions, use.recurrent, use.attention
    assert (convolution.kernel, convolution.native, convolution.layer) == ("thnn_conv2d", True, "stem")
    assert (convolution.calls_per_step, convolution.ms_per_step) == (1.0, 4.0)
    assert convolution.channels_last is False
    assert (lstm.native, lstm.ms_per_step, lstm.native_ms, lstm.onednn_ms) == (True, 1.0, 0.9, 0.3)
    assert (attention.batch, attention.queries, attention.width, attention.keys) == (32, 256, 64, 128)
    assert (attention.calls_per_step, attention.ms_per_step) == (2.0, 5.0)
    assert not isinstance(attention.timing, Missing)
    assert (attention.timing.now_ms, attention.timing.fused_ms, attention.timing.part) == (2.5, 1.25, 0.5)
    assert not use.on_device


def test_timings_of_layouts_know_what_the_job_spends_on_them(tmp_path: Path) -> None:
    shapes = [[32, 16, 8, 8], [16]]
    pooling = {"name": "aten::avg_pool2d", "dtype": "float32", "shapes": shapes}
    op = {**pooling, "calls": 4, "self_us": 4000, "total_us": 5000}
    other = {"name": "aten::avg_pool2d", "dtype": "float32", "shapes": [[1, 1, 8, 8]]}
    timed = {"first_us": 1500.0, "last_us": 300.0}
    timings = {"k": "timings", "layout": [{**pooling, **timed}, {**other, **timed}, {**pooling, "first_us": 0.0}]}
    use = libraries.use(_process(tmp_path, _window({"convolutions": [CONVOLUTION]}, ops=[op]), timings))
    assert isinstance(use, LibraryUse)
    seen, unseen = use.layout_timings
    assert (seen.name, seen.shapes, seen.first_ms, seen.last_ms) == ("avg_pool2d", "[32, 16, 8, 8] [16]", 1.5, 0.3)
    assert (seen.ms_per_step, unseen.ms_per_step) == (2.5, 0.0)


def test_on_a_device_its_own_times_count(tmp_path: Path) -> None:
    row = CONVOLUTION | {"kernel": "aten::cudnn_convolution", "device_forward_us": 200, "device_backward_us": 600}
    use = _used(tmp_path, {"convolutions": [row]}, device={"kernels": 2000, "layout": 300})
    assert use.on_device
    assert use.convolutions[0].ms_per_step == pytest.approx(0.4)
    assert use.layout_ms == pytest.approx(0.15)


def test_attention_without_a_timing_says_so(tmp_path: Path) -> None:
    row = {name: value for name, value in ATTENTION.items() if name not in ("now_us", "fused_us", "sizes")}
    (attention,) = _used(tmp_path, {"attention": [row]}).attention
    assert isinstance(attention.timing, Missing)
    assert attention.batch == 0


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "not reached"),
        ([_window()], "does not say"),
        ([_window(missing="a profiler of its own")], "a profiler of its own"),
        ([_window({"missing": "AttributeError: shapes"})], "AttributeError"),
    ],
)
def test_what_is_missing_has_a_reason(tmp_path: Path, records: list[dict[str, Any]], reason: str) -> None:
    use = libraries.use(_process(tmp_path, *records))
    assert isinstance(use, Missing)
    assert reason in use.reason


# ---------------------------------------------------------------------------------------------------------
# Settings


def test_a_job_without_cuda_has_no_cudnn(tmp_path: Path) -> None:
    seen = libraries.cudnn(_process(tmp_path))
    assert isinstance(seen, Missing)
    assert "does not use CUDA" in seen.reason


def test_an_older_recording_of_a_job_on_cuda_does_not_say(tmp_path: Path) -> None:
    seen = libraries.cudnn(_process(tmp_path, cuda=CUDA))
    assert isinstance(seen, Missing)
    assert "does not say" in seen.reason


def test_settings_are_read_with_what_was_seen_in_the_forward(tmp_path: Path) -> None:
    facts = {"available": True, "version": 91900, "enabled": True, "benchmark": True, "benchmark_limit": 10}
    seen = libraries.cudnn(_process(tmp_path, cuda=CUDA, cudnn=facts, cudnn_in_forward=False))
    assert isinstance(seen, Cudnn)
    assert (seen.available, seen.version, seen.enabled, seen.enabled_in_forward) == (True, 91900, True, False)
    assert (seen.benchmark, seen.benchmark_limit, seen.deterministic, seen.error) == (True, 10, False, "")
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
    found = libraries.cudnn(_process(tmp_path, *records, cuda=CUDA, cudnn={"available": True}))
    assert isinstance(found, Cudnn)
    assert found.shapes == expected if expected else isinstance(found.shapes, Missing)


@pytest.mark.parametrize(
    ("at_step", "at_batch", "between"),
    [(True, None, True), (False, None, False), (False, False, False), (False, True, True)],
)
def test_a_switch_around_the_whole_step_is_told_by_the_next_batch(
    tmp_path: Path, at_step: bool, at_batch: bool | None, between: bool
) -> None:
    batch = {"k": "batch", "loader": 1} | ({} if at_batch is None else {"onednn": at_batch})
    built = backend.build(_process(tmp_path, batch, mkldnn=at_step, libraries={"blas": "mkl"}), Places({}, ""), None)
    assert isinstance(built, Backend)
    assert built.onednn_between_steps is between


@pytest.mark.parametrize(
    ("kernel", "chosen", "native"),
    [
        ("aten::slow_conv_dilated2d", "SlowDilated2d", True),
        ("aten::cudnn_convolution", "Cudnn", False),
        ("aten::_conv_depthwise2d", "CudaDepthwise2d", False),
        ("", "Slow3d", True),
        ("", "Miopen", False),
        ("", "", False),
    ],
)
def test_a_convolution_is_native_by_what_ran_and_else_by_what_torch_chose(
    tmp_path: Path, kernel: str, chosen: str, native: bool
) -> None:
    (found,) = _used(tmp_path, {"convolutions": [{**CONVOLUTION, "kernel": kernel, "chosen": chosen}]}).convolutions
    assert (found.chosen, found.native) == (chosen, native)
