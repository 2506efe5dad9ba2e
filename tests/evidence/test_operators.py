from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import Record, no_window, ops_window, recorded, selected, steps, torch

from perfdoctor.evidence import steady, windows
from perfdoctor.evidence.model import (
    BatchReplay,
    BatchTiming,
    BatchTimings,
    DtypeTiming,
    LibraryUse,
    Missing,
    OpProfile,
    ThreadTiming,
    UpdateTiming,
)

BATCH = {
    "ops": [
        {
            "name": "mm",
            "shapes": "[8, 64] [64, 32]",
            "calls_per_step": 3.0,
            "factor": 4,
            "milliseconds": 0.1,
            "larger_milliseconds": 0.25,
            "smaller_milliseconds": 0.08,
        }
    ],
    "smaller": 4,
    "peak_gflops": 90.0,
    "floor_ms": 0.0015,
}
LSTM = {
    "kernel": "lstm",
    "layer": "read",
    "module": "LSTM",
    "dtype": "float32",
    "calls_per_step": 1.0,
    "ms_per_step": 1.0,
    "copies_ms": 0.0,
}
PASSES = {"batch": 8, "times": [[1, 2.0], [4, 5.0]]}
ATTENTION = {
    "made": "by hand",
    "layer": "",
    "module": "",
    "dtype": "float32",
    "batch": 32,
    "queries": 256,
    "width": 64,
    "keys": 128,
    "mask": "",
    "dropout": 0.0,
    "calls_per_step": 2.0,
    "ms_per_step": 5.0,
}


def _profile(tmp_path: Path, *timings: Record, **profile: Any) -> OpProfile:
    walls = steps(10_000, 20, forward_us=4_000, backward_us=6_000)
    recording = recorded(tmp_path, torch(), walls, ops_window(**profile), *timings)
    found = windows.profile(recording, steady.measure(recording, selected(recording)))
    assert isinstance(found, OpProfile)
    return found


def test_timings_taken_after_the_last_step_complete_the_window(tmp_path: Path) -> None:
    update = {"optimizer": "Adam", "made": "loop", "tensors": 9, "part": 0.5, "now_ms": 0.9, "fused_ms": 0.1}
    dtype = {"name": "mm", "shapes": "[8]", "dtype": "float64", "milliseconds": 0.5, "float32_milliseconds": 0.2}
    found = _profile(tmp_path, {"k": "timings", "batch": BATCH, "passes": PASSES, "update": update, "dtype": [dtype]})
    timing = BatchTiming("mm", "[8, 64] [64, 32]", 3.0, 0.1, 4, 0.25, 0.08)
    assert found.batch_timings == BatchTimings((timing,), 4, 90.0, 0.0015)
    assert timing.growing_milliseconds == pytest.approx(0.05)
    assert found.batch_replay == BatchReplay(8, ((1, 2.0), (4, 5.0)))
    assert found.update == UpdateTiming("Adam", "loop", 9, 0.9, None, 0.1, part=0.5)
    assert found.timings == (DtypeTiming("mm", "[8]", "float64", 0.5, 0.2),)


@pytest.mark.parametrize(("larger", "growing"), [(0.05, 0.0), (0.1, 0.0), (0.4, 0.1), (4.0, 0.1)])
def test_no_more_than_the_whole_call_grows(larger: float, growing: float) -> None:
    timing = BatchTiming("mm", "", 1.0, 0.1, 4, larger)
    assert timing.growing_milliseconds == pytest.approx(growing)
    assert timing.smaller_milliseconds is None


def test_a_job_that_was_killed_has_no_timings_and_it_says_so(tmp_path: Path) -> None:
    found = _profile(tmp_path)
    for missing in (found.batch_timings, found.update):
        assert isinstance(missing, Missing)
        assert "gone before" in missing.reason


@pytest.mark.parametrize(("now_ms", "told"), [(11.0, True), (24.0, True), (46.0, False)])
def test_passes_that_took_much_longer_when_they_were_made_again_say_nothing(
    tmp_path: Path, now_ms: float, told: bool
) -> None:
    """Of 10 ms in the steps: another program came, and two threads waited for each other."""
    times = [["threads=1", 13.0], ["bfloat16", 9.0]]
    found = _profile(tmp_path, {"k": "timings", "ways": {"now_ms": now_ms, "times": times}})
    assert isinstance(found.ways, Missing) is not told
    assert told or "4.6 times as long" in found.ways.reason  # type: ignore[union-attr]


def test_what_could_not_be_timed_says_why(tmp_path: Path) -> None:
    batch = {"missing": "no operator could be timed", "remedy": "compare two runs"}
    found = _profile(tmp_path, {"k": "timings", "batch": batch, "update": {"missing": "its step is differentiable"}})
    assert found.batch_timings == Missing("no operator could be timed", "compare two runs")
    assert found.update == Missing("its step is differentiable")


def test_timings_of_threads_are_means_over_the_whole_rounds(tmp_path: Path) -> None:
    rounds = [{1: 5.0, 2: 3.0}, {1: 7.0, 2: 4.0}, {1: 90.0}]  # the last was cut short
    records = [
        {"k": "threads", "step": 9, "timings": [{"threads": n, "milliseconds": ms} for n, ms in one.items()]}
        for one in rounds
    ]
    assert _profile(tmp_path, *records).thread_timings == (ThreadTiming(1, 6.0, 2), ThreadTiming(2, 3.5, 2))


def _use(tmp_path: Path, *records: Record) -> LibraryUse | Missing:
    return windows.library_use(recorded(tmp_path, torch(), steps(10_000, 20), *records))


def test_timings_of_libraries_take_the_place_of_the_rows_of_the_window(tmp_path: Path) -> None:
    window = ops_window(library_use={"recurrent": [LSTM], "attention": [ATTENTION], "on_device": False})
    use = _use(tmp_path, window)
    assert isinstance(use, LibraryUse)
    assert (use.recurrent[0].native, use.recurrent[0].native_ms) == (True, 0.0)
    assert isinstance(use.attention[0].timing, Missing) and "gone before" in use.attention[0].timing.reason
    timing = {"now_ms": 2.5, "fused_ms": 1.25, "part": 0.5, "choice": "fused"}
    layout = {"name": "avg_pool2d", "shapes": "[32, 16, 8, 8]", "first_ms": 1.5, "last_ms": 0.3, "ms_per_step": 2.5}
    timings = {
        "k": "timings",
        "recurrent": [{**LSTM, "native_ms": 0.9, "onednn_ms": 0.3}],
        "attention": [{**ATTENTION, "timing": timing}, {**ATTENTION, "timing": {"missing": "it was not replayed"}}],
        "layout": [layout],
    }
    timed = _use(tmp_path, window, timings)
    assert isinstance(timed, LibraryUse)
    assert (timed.recurrent[0].native_ms, timed.recurrent[0].onednn_ms) == (0.9, 0.3)
    first, second = (one.timing for one in timed.attention)
    assert not isinstance(first, Missing)
    assert (first.now_ms, first.fused_ms, first.part, first.choice) == (2.5, 1.25, 0.5, "fused")
    assert second == Missing("it was not replayed")
    assert timed.layout_timings[0].ms_per_step == 2.5


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "not reached"),
        ([no_window("ops", "a profiler of its own")], "a profiler of its own"),
        ([ops_window(library_use={"missing": "AttributeError: shapes"})], "AttributeError"),
    ],
)
def test_what_is_missing_has_a_reason(tmp_path: Path, records: list[Record], reason: str) -> None:
    use = _use(tmp_path, *records)
    assert isinstance(use, Missing)
    assert reason in use.reason
