"""Ranges widened by how far predictions missed before."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfdoctor.diagnosis import calibration
from perfdoctor.diagnosis.calibration import Ends, calibrated, miss, widening
from perfdoctor.diagnosis.findings import Savings

SAVED = Savings(ceiling_ms=50.0, low_ms=30.0, high_ms=40.0, share=0.5, method="by decree")


@pytest.mark.parametrize("true", [1.0, 1.25, 1.5, 1.8, 2.0])
def test_a_miss_counts_half_widths_beyond_each_end(true: float) -> None:
    half = math.log(1.8 / 1.25) / 2
    expected = math.log(1.25 / true) / half, math.log(true / 1.8) / half
    assert miss(1.25, 1.8, true) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def _alike(value: float, count: int) -> list[Ends]:
    return [(value, value)] * count


def test_each_end_is_widened_by_what_95_percent_did_not_exceed() -> None:
    assert widening({"PD03": [(k / 10, float(k)) for k in range(59)]}, "PD03") == (5.6, 56.0)
    assert widening({"PD03": [(-1.0, 2.0)] * 40}, "PD03") == (0.0, 2.0)  # ranges are never made narrower
    assert widening({"PD03": _alike(3.0, 20), "PD07": _alike(3.0, 19)}, "PD03") == (0.0, 0.0)  # too few to tell


def test_a_check_with_few_misses_is_judged_by_all() -> None:
    misses = {"PD03": _alike(0.0, 40), "PD07": _alike(5.0, 6)}
    assert widening(misses, "PD07") == widening(misses, "PD99") == (5.0, 5.0)
    assert widening(misses, "PD03") == (0.0, 0.0)


def test_widened_ranges_hold_nine_truths_in_ten() -> None:
    rng = np.random.default_rng(3)

    def drawn(count: int) -> list[Ends]:
        return [miss(1.4, 1.6, float(np.exp(rng.normal(math.log(1.55), 0.3)))) for _ in range(count)]

    inside = []
    for _ in range(200):
        below, above = widening({"PD03": drawn(60)}, "PD03")
        inside += [low <= below and high <= above for low, high in drawn(1)]
    assert 0.85 <= float(np.mean(inside)) <= 0.98


def test_savings_keep_the_range_that_was_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_known", lambda: {"PD03": [(1.0, 2.0)] * 40})
    wide = calibrated(SAVED, "PD03", 100.0)
    assert wide.predicted_ms == (30.0, 40.0)
    low, high = (1 / (1 - ms / 100.0) for ms in (wide.low_ms, wide.high_ms))
    half = math.log((1 / 0.6) / (1 / 0.7)) / 2
    assert (math.log(low), math.log(high)) == (
        pytest.approx(math.log(1 / 0.7) - half),
        pytest.approx(math.log(1 / 0.6) + 2 * half),
    )
    monkeypatch.setattr(calibration, "_known", lambda: {"PD03": _alike(100.0, 40)})
    widest = calibrated(SAVED, "PD03", 100.0)
    assert (widest.low_ms, widest.high_ms, widest.ceiling_ms) == (0.0, 98.0, 98.0)
    monkeypatch.setattr(calibration, "_known", dict)
    assert calibrated(SAVED, "PD03", 100.0) is SAVED
