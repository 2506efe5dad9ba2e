"""Ranges widened by how far predictions missed before."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks.calibrate import unseen
from perfdoctor.diagnosis import calibration
from perfdoctor.diagnosis.calibration import Ends, calibrated, miss, widening
from perfdoctor.diagnosis.findings import Savings

SAVED = Savings(ceiling_ms=50.0, low_ms=30.0, high_ms=40.0, share=0.5, method="by decree")


@pytest.mark.parametrize("true", [0.8, 1.25, 1.5, 1.8, 2.0])
def test_a_miss_is_the_power_that_makes_an_end_the_truth(true: float) -> None:
    below, above = miss(1.25, 1.8, true)
    assert (1.25**below, 1.8**above) == (pytest.approx(true), pytest.approx(true))


@pytest.mark.parametrize(("true", "held"), [(0.9, 0.0), (1.0, 1.0), (1.2, 1.0)])
def test_an_end_at_no_gain_holds_every_gain_and_no_loss(true: float, held: float) -> None:
    assert miss(1.0, 1.1, true)[0] == held


def _alike(low: float, high: float, count: int) -> list[Ends]:
    return [(low, high)] * count


def test_each_end_is_widened_by_what_95_percent_did_not_exceed() -> None:
    misses = [(0.4 + k / 100, 1.0 + k / 10) for k in range(59)]
    assert widening({"PD03": misses}, "PD03") == (pytest.approx(0.42), pytest.approx(6.6))
    assert widening({"PD03": _alike(1.2, 0.9, 40)}, "PD03") == (1.0, 1.0)  # ranges are never made narrower
    assert widening({"PD03": _alike(-0.3, 0.9, 40)}, "PD03") == (0.0, 1.0)  # nor told as a loss
    assert widening({"PD03": _alike(0.5, 3.0, 10), "PD07": _alike(0.5, 3.0, 8)}, "PD03") == (1.0, 1.0)  # too few


def test_a_check_with_few_misses_is_judged_by_all() -> None:
    misses = {"PD03": _alike(1.0, 1.0, 40), "PD07": _alike(0.5, 5.0, 6)}
    assert widening(misses, "PD07") == widening(misses, "PD99") == (0.5, 5.0)
    assert widening(misses, "PD03") == (1.0, 1.0)


def test_widened_ranges_hold_nine_truths_in_ten() -> None:
    rng = np.random.default_rng(3)

    def drawn(count: int) -> list[Ends]:
        return [miss(1.4, 1.6, float(np.exp(rng.normal(math.log(1.55), 0.3)))) for _ in range(count)]

    inside = []
    for _ in range(200):
        below, above = widening({"PD03": drawn(60)}, "PD03")
        inside += [low >= below and high <= above for low, high in drawn(1)]
    assert 0.85 <= float(np.mean(inside)) <= 0.98


def test_savings_keep_the_range_that_was_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_known", lambda: calibration.Known({"PD03": _alike(0.5, 2.0, 40)}))
    wide = calibrated(SAVED, "PD03", 100.0)
    assert wide.predicted_ms == (30.0, 40.0)
    low, high = (1 / (1 - ms / 100.0) for ms in (wide.low_ms, wide.high_ms))
    assert (low, high) == (pytest.approx((1 / 0.7) ** 0.5), pytest.approx((1 / 0.6) ** 2))
    monkeypatch.setattr(calibration, "_known", lambda: calibration.Known({"PD03": _alike(0.0, 100.0, 40)}))
    widest = calibrated(SAVED, "PD03", 100.0)
    assert (widest.low_ms, widest.high_ms, widest.ceiling_ms) == (0.0, 98.0, 98.0)
    monkeypatch.setattr(calibration, "_known", calibration.Known)
    assert calibrated(SAVED, "PD03", 100.0) is SAVED


def test_for_new_programs_both_ends_are_moved_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_known", lambda: calibration.Known({"PD03": _alike(0.8, 1.2, 40)}, unseen=1.5))
    wide = calibrated(SAVED, "PD03", 100.0)
    low, high = (1 / (1 - ms / 100.0) for ms in (wide.low_ms, wide.high_ms))
    assert (low, high) == (pytest.approx((1 / 0.7) ** (0.8 / 1.5)), pytest.approx((1 / 0.6) ** 1.8))


def test_the_power_for_new_programs_holds_most_of_the_truths_that_were_missed_at_first() -> None:
    told = [{"low": 1.2, "high": 1.5, "true": 1.3}] * 15 + [{"low": 1.2, "true": 9.0}]
    assert unseen(told) == 1.0
    told += [{"low": 1.44, "high": 1.5, "true": 1.2}, {"low": 1.2, "high": 1.44, "true": 1.44**1.5}]
    assert unseen(told) == 1.5, "the 17th smallest of 18"
    assert unseen(told * 3 + told[:15] * 2) == 1.0


def test_the_misses_that_are_kept_widen_every_range_and_turn_none_over() -> None:
    below, above = widening(json.loads(calibration.MISSES.read_text())["misses"], "PD99")
    assert 0.5 < below < 1 < above < 2
    assert 1 < json.loads(calibration.MISSES.read_text())["unseen"] < 1.5
