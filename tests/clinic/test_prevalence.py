"""Rates weighted by how often each cause occurs."""

from __future__ import annotations

import math

import pytest

from benchmarks.clinic.prevalence import JOBS, QUESTIONS, f1, weighted


def test_a_rate_is_weighted_over_what_was_tried_and_over_all() -> None:
    found = weighted({"PD03": 0.5, "PD07": 1.0}, {"PD03": 30.0, "PD07": 10.0, "PD01": 20.0})
    assert found.tried == pytest.approx(25 / 40)
    assert found.all == pytest.approx(0.25)
    assert found.share == pytest.approx(0.4)


def test_what_has_no_trials_was_not_tried() -> None:
    found = weighted({"PD03": math.nan, "PD07": 1.0}, {"PD03": 30.0, "PD07": 10.0})
    assert (found.tried, found.all, found.share) == (1.0, pytest.approx(0.1), pytest.approx(0.1))
    assert math.isnan(weighted({}, {"PD03": 30.0}).tried)


@pytest.mark.parametrize(("weights", "covered"), [(JOBS, 66.0), (QUESTIONS, 55.6)])
def test_the_weights_are_the_published_counts(weights: dict[str, float], covered: float) -> None:
    assert sum(weights.values()) == pytest.approx(covered, abs=0.05)


@pytest.mark.parametrize(
    ("recall", "precision", "value"), [(1.0, 1.0, 1.0), (0.5, 1.0, 2 / 3), (0.0, math.nan, 0.0), (0.0, 0.0, 0.0)]
)
def test_f1_is_the_harmonic_mean(recall: float, precision: float, value: float) -> None:
    assert f1(recall, precision) == pytest.approx(value)


def test_f1_without_trials_is_none() -> None:
    assert math.isnan(f1(math.nan, 1.0))
    assert math.isnan(f1(1.0, math.nan))
