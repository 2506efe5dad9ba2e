from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from recordings import autocorrelated

from perfdoctor.evidence.stats import block_interval, lasting_low, mad, trimmed_mean


def _coverage(noise: Callable[[np.random.Generator], np.ndarray], runs: int = 300) -> float:
    """How often the 95 % interval holds the true mean, 100."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(runs):
        low, high = block_interval(100 + noise(rng))
        hits += low <= 100 <= high
    return hits / runs


def test_the_interval_holds_the_mean_of_independent_steps() -> None:
    assert 0.88 <= _coverage(lambda rng: rng.normal(size=200)) <= 0.99


def test_the_interval_holds_the_mean_although_neighbours_resemble_each_other() -> None:
    """Resampling single steps of such a series would hold it in about three of four runs."""
    assert 0.85 <= _coverage(lambda rng: autocorrelated(rng, 200, rho=0.5)) <= 0.99


def test_the_interval_narrows_with_more_steps() -> None:
    values = np.random.default_rng(1).normal(100, 5, 2000)
    few, many = block_interval(values[:50]), block_interval(values)
    assert many[1] - many[0] < (few[1] - few[0]) / 2


def test_the_interval_is_the_same_every_time() -> None:
    values = np.random.default_rng(1).normal(100, 5, 200)
    assert block_interval(values) == block_interval(values.copy())


@pytest.mark.parametrize(
    ("values", "interval"),
    [([], (0.0, 0.0)), ([3.0], (3.0, 3.0)), ([1.0, 2.0, 4.0], (1.0, 4.0)), ([2.0] * 50, (2.0, 2.0))],
)
def test_few_or_equal_values_have_a_plain_interval(values: list[float], interval: tuple[float, float]) -> None:
    assert block_interval(np.array(values)) == interval


def test_one_hiccup_in_twenty_does_not_move_the_trimmed_mean() -> None:
    assert trimmed_mean(np.array([10.0] * 19 + [1000.0])) == 10.0
    assert trimmed_mean(np.array([10.0] * 17 + [1000.0] * 3)) > 10.0


def test_of_few_values_nothing_is_trimmed() -> None:
    assert trimmed_mean(np.array([1.0, 3.0])) == 2.0
    assert trimmed_mean(np.array([])) == 0.0


def test_the_median_deviation_ignores_hiccups() -> None:
    assert mad(np.array([9.0, 10.0, 11.0, 10.0, 1000.0])) == 1.0
    assert mad(np.array([])) == 0.0


def _claims(low: Callable[[np.ndarray], float], rho: float, runs: int = 300) -> float:
    """How often something is surely above nothing that is nothing."""
    rng = np.random.default_rng(3)
    return sum(low(autocorrelated(rng, 140, rho=rho)) > 0 for _ in range(runs)) / runs


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_what_comes_and_goes_is_seldom_taken_for_what_lasts(rho: float) -> None:
    by_eighths = _claims(lasting_low, rho)
    assert by_eighths <= 0.02
    if rho == 0.8:
        assert _claims(lambda values: block_interval(values)[0], rho) > 2 * by_eighths


def test_what_lasts_is_certain_in_some_seconds() -> None:
    """15 ms of 60, beside noise as large as that."""
    rng = np.random.default_rng(5)
    assert sum(lasting_low(15 + 15 * autocorrelated(rng, 120, rho=0.3)) > 3 for _ in range(100)) >= 95


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 3.0, 4.0], [2.0] * 40])
def test_few_values_or_even_ones_are_their_own_bound(values: list[float]) -> None:
    assert lasting_low(np.array(values)) == min(values, default=0.0)
