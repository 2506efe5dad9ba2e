from __future__ import annotations

from pathlib import Path

import pytest
from recordings import recorded, steps, torch

from perfdoctor.evidence import operators
from perfdoctor.evidence.model import BatchTimings, Missing, UpdateTiming


def _timings(tmp_path: Path, *timings: dict[str, object]) -> BatchTimings | Missing:
    window = {"k": "window", "name": "ops", "steps": 2, "aten": 10, "ops": [], "self_us": {}}
    profile = operators.profile(recorded(tmp_path, torch(), steps(10_000, 20), window, *timings))
    assert not isinstance(profile, Missing)
    return profile.batch_timings


def _record(batch: object) -> dict[str, object]:
    return {"k": "timings", "timings": [], "onednn": [], "batch": batch}


def test_timings_of_batches_become_milliseconds_per_step(tmp_path: Path) -> None:
    row = {
        "name": "aten::mm",
        "dtype": "float32",
        "shapes": [[8, 64], [64, 32]],
        "calls": 6,
        "factor": 4,
        "us": 100.0,
        "larger_us": 250.0,
        "smaller_us": 80.0,
    }
    timings = _timings(tmp_path, _record({"ops": [row], "smaller": 4, "peak_gflops": 90.0, "floor_us": 1.5}))
    assert not isinstance(timings, Missing)
    (timing,) = timings.ops
    assert (timing.name, timing.shapes, timing.calls_per_step) == ("mm", "[8, 64] [64, 32]", 3.0)
    assert (timing.milliseconds, timing.larger_milliseconds, timing.smaller_milliseconds) == (0.1, 0.25, 0.08)
    assert timing.growing_milliseconds == pytest.approx(0.05)
    assert (timings.peak_gflops, timings.floor_ms) == (90.0, 0.0015)


@pytest.mark.parametrize(("larger", "growing"), [(50.0, 0.0), (100.0, 0.0), (400.0, 0.1), (4000.0, 0.1)])
def test_no_more_than_the_whole_call_grows(tmp_path: Path, larger: float, growing: float) -> None:
    row = {"name": "aten::mm", "calls": 2, "factor": 4, "us": 100.0, "larger_us": larger}
    timings = _timings(tmp_path, _record({"ops": [row]}))
    assert not isinstance(timings, Missing)
    assert timings.ops[0].growing_milliseconds == pytest.approx(growing)
    assert timings.ops[0].smaller_milliseconds is None


@pytest.mark.parametrize(
    ("waited", "stray_ms"),
    [(None, 0.0), ([0, 0], 0.0), ([6000, 1], 3.0), ([6000, 2], 3.0), ([60_000, 20], 3.0), ([60_000, 200], 0.3)],
)
def test_two_waits_for_a_cpu_may_fall_into_one_operator(
    tmp_path: Path, waited: list[int] | None, stray_ms: float
) -> None:
    window = {"k": "window", "name": "ops", "steps": 2, "ops": [], "self_us": {}, "waited": waited}
    profile = operators.profile(recorded(tmp_path, torch(), steps(10_000, 20), window))
    assert not isinstance(profile, Missing)
    assert profile.stray_ms == pytest.approx(stray_ms)


@pytest.mark.parametrize("batch", [None, {}, {"ops": []}])
def test_where_nothing_could_be_timed_it_says_how_to_find_out(tmp_path: Path, batch: object) -> None:
    timings = _timings(tmp_path, _record(batch))
    assert isinstance(timings, Missing)
    assert "compare two runs" in timings.remedy


def test_a_job_that_was_killed_has_no_timings_and_it_says_so(tmp_path: Path) -> None:
    timings = _timings(tmp_path)
    assert isinstance(timings, Missing)
    assert "gone before" in timings.reason


def _update(tmp_path: Path, *timings: dict[str, object]) -> UpdateTiming | Missing:
    window = {"k": "window", "name": "ops", "steps": 2, "aten": 10, "ops": [], "self_us": {}}
    profile = operators.profile(recorded(tmp_path, torch(), steps(10_000, 20), window, *timings))
    assert not isinstance(profile, Missing)
    return profile.update


def test_timings_of_an_update_become_milliseconds(tmp_path: Path) -> None:
    row = {"optimizer": "Adam", "made": "loop", "tensors": 9, "part": 0.5, "now_us": 900.0, "fused_us": 100.0}
    assert _update(tmp_path, {"k": "timings", "update": row}) == UpdateTiming("Adam", "loop", 9, 0.9, None, 0.1, 0.5)


@pytest.mark.parametrize(
    ("timings", "why"),
    [
        ((), "gone before"),
        (({"k": "timings", "timings": []},), "there is none"),
        (({"k": "timings", "update": {"missing": "its step is differentiable"}},), "timed: its step is differentiable"),
    ],
)
def test_an_update_that_was_not_timed_says_why(
    tmp_path: Path, timings: tuple[dict[str, object], ...], why: str
) -> None:
    update = _update(tmp_path, *timings)
    assert isinstance(update, Missing)
    assert why in update.reason
