from __future__ import annotations

from pathlib import Path

import pytest
from recordings import recorded, steps, torch

from perfdoctor.evidence import operators
from perfdoctor.evidence.model import BatchPrices, Missing


def _prices(tmp_path: Path, *prices: dict[str, object]) -> BatchPrices | Missing:
    window = {"k": "window", "name": "ops", "steps": 2, "aten": 10, "ops": [], "self_us": {}}
    profile = operators.profile(recorded(tmp_path, torch(), steps(10_000, 20), window, *prices))
    assert not isinstance(profile, Missing)
    return profile.batch_prices


def _record(batch: object) -> dict[str, object]:
    return {"k": "prices", "prices": [], "onednn": [], "batch": batch}


def test_prices_of_batches_become_milliseconds_per_step(tmp_path: Path) -> None:
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
    prices = _prices(tmp_path, _record({"ops": [row], "smaller": 4, "peak_gflops": 90.0, "floor_us": 1.5}))
    assert not isinstance(prices, Missing)
    (price,) = prices.ops
    assert (price.name, price.shapes, price.calls_per_step) == ("mm", "[8, 64] [64, 32]", 3.0)
    assert (price.milliseconds, price.larger_milliseconds, price.smaller_milliseconds) == (0.1, 0.25, 0.08)
    assert price.growing_milliseconds == pytest.approx(0.05)
    assert (prices.peak_gflops, prices.floor_ms) == (90.0, 0.0015)


@pytest.mark.parametrize(("larger", "growing"), [(50.0, 0.0), (100.0, 0.0), (400.0, 0.1), (4000.0, 0.1)])
def test_no_more_than_the_whole_call_grows(tmp_path: Path, larger: float, growing: float) -> None:
    row = {"name": "aten::mm", "calls": 2, "factor": 4, "us": 100.0, "larger_us": larger}
    prices = _prices(tmp_path, _record({"ops": [row]}))
    assert not isinstance(prices, Missing)
    assert prices.ops[0].growing_milliseconds == pytest.approx(growing)
    assert prices.ops[0].smaller_milliseconds is None


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
    prices = _prices(tmp_path, _record(batch))
    assert isinstance(prices, Missing)
    assert "compare two runs" in prices.remedy


def test_a_job_that_was_killed_has_no_prices_and_it_says_so(tmp_path: Path) -> None:
    prices = _prices(tmp_path)
    assert isinstance(prices, Missing)
    assert "gone before" in prices.reason
