"""Errors of predictions, and of those that take no thought."""

from __future__ import annotations

import math

import pytest

from benchmarks.clinic.predictions import PUBLISHED, Prediction, errors, median, p90, trivial
from benchmarks.clinic.rate import Rate


def said(low: float, middle: float, high: float, true: float, amdahl: float = 3.0, code: str = "PD07") -> Prediction:
    return Prediction(code, low, middle, high, amdahl, true)


def test_errors_are_of_the_speed_up_and_of_the_gain() -> None:
    found = errors([said(1.5, 1.8, 2.2, true=2.0)])
    assert found.speed_up == (pytest.approx(0.1),)
    assert found.gain == (pytest.approx(0.2),)
    assert found.covered == Rate(1, 1)
    assert found.too_high == Rate(0, 1)


def test_the_error_of_a_gain_needs_a_gain() -> None:
    found = errors([said(1.0, 1.3, 1.5, true=1.01)])
    assert found.speed_up == (pytest.approx(1.3 / 1.01 - 1),)
    assert found.gain == ()


@pytest.mark.parametrize(
    ("middle", "true", "hits"),
    [(1.5, 1.2, 1), (1.0, 1.0, 1), (1.0, 0.7, 1), (1.5, 1.0, 0), (1.5, 0.7, 0), (1.0, 1.5, 0)],
)
def test_the_sign_says_whether_the_fix_helps(middle: float, true: float, hits: int) -> None:
    assert errors([said(1.0, middle, 2.0, true)]).sign == Rate(hits, 1)


@pytest.mark.parametrize(("true", "hits"), [(1.5, 1), (2.2, 1), (1.49, 0), (2.21, 0)])
def test_a_range_covers_what_lies_in_it(true: float, hits: int) -> None:
    assert errors([said(1.5, 1.8, 2.2, true)]).covered == Rate(hits, 1)


def test_the_median_and_the_ninth_tenth() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert p90([float(one) for one in range(1, 11)]) == 9.0
    assert p90([4.0]) == 4.0
    assert math.isnan(median([])) and math.isnan(p90([]))


def test_the_trivial_predictors_are_asked_about_the_same_fixes() -> None:
    beside = trivial([said(1.5, 1.8, 2.2, true=2.0), said(1.5, 1.8, 2.2, true=4.0, amdahl=4.0, code="PD11")])
    assert beside["always 1.0x"].speed_up == (pytest.approx(0.5), pytest.approx(0.75))
    assert beside["always 1.0x"].gain == (pytest.approx(1.0), pytest.approx(1.0))
    assert beside["all the time that is blamed"].speed_up == (pytest.approx(0.0), pytest.approx(0.5))
    assert beside["median of published gains"].speed_up == (pytest.approx(2.35 / 2 - 1), pytest.approx(1 - 2.36 / 4))


def test_a_check_without_published_gains_is_predicted_none() -> None:
    assert "PD01" not in PUBLISHED
    assert trivial([said(1.5, 1.8, 2.2, true=2.0, code="PD01")])["median of published gains"].gain == (1.0,)
