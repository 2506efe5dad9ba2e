"""How long blocks are, and in which order they come."""

from __future__ import annotations

import random

import numpy as np
import pytest

from perfdoctor.trials.blocks import LEAST_PAIRS, MORE, NOISE, SETTLE, Size, block_steps, orders


def test_quiet_steps_need_few() -> None:
    assert block_steps(np.full(200, 50.0)) == 4


def test_short_steps_make_up_a_block_worth_the_switching() -> None:
    assert block_steps(np.full(200, 1.0)) == 60


def test_noisy_steps_need_more_until_the_mean_is_quiet() -> None:
    rng = np.random.default_rng(1)
    walls = 20 * np.exp(rng.normal(0, 0.08, 2000))
    steps = block_steps(walls)
    means = walls[: walls.size // steps * steps].reshape(-1, steps).mean(axis=1)
    assert steps > 8 and means.std() / means.mean() < 1.5 * NOISE


def test_neighbours_that_resemble_each_other_need_more_than_independent_ones() -> None:
    rng = np.random.default_rng(2)
    independent = rng.normal(0, 0.06, 3000)
    resembling = np.repeat(rng.normal(0, 0.06, 300), 10)
    assert block_steps(20 * np.exp(resembling)) > block_steps(20 * np.exp(independent))


def test_a_block_never_gets_so_long_that_few_fit() -> None:
    rng = np.random.default_rng(3)
    walls = 100 * np.exp(rng.normal(0, 1.0, 500))
    assert block_steps(walls) == int(1500 / np.median(walls))


@pytest.mark.parametrize(("ms", "steps"), [(2000.0, 4), (0.0, 4)])
def test_long_and_empty_steps_get_the_fewest(ms: float, steps: int) -> None:
    assert block_steps(np.full(20, ms)) == steps


def test_few_observed_steps_are_enough_to_choose() -> None:
    assert block_steps(np.array([20.0, 21.0, 19.0, 20.5, 19.5, 20.0])) >= 4


def test_the_remedy_comes_first_as_often_as_not() -> None:
    seen = [tuple(orders(6, random.Random(seed))) for seed in range(20)]
    assert all(sum(order) == 3 for order in seen)
    assert len(set(seen)) > 5, "in random order"


def test_scatter_is_that_of_a_standard_deviation() -> None:
    """Means of four such steps scatter by 2.25 %, of which half lie within 1.5 %."""
    walls = 20 * (1 + np.random.default_rng(3).normal(0, 0.045, 4000))
    assert block_steps(walls) > 4


def test_a_trial_needs_the_fewest_pairs_of_two_blocks_each() -> None:
    assert Size(10, 0.01).least_s == pytest.approx(2 * LEAST_PAIRS * (10 + SETTLE + MORE / 2) * 0.01)
    assert Size(10, 0.01, epochs=1).least_s == pytest.approx(2 * LEAST_PAIRS * 20 * 0.01)


@pytest.mark.parametrize("every", [2, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("steps", [4, 6, 10])
def test_what_a_job_does_every_so_many_steps_falls_into_all_blocks_alike(steps: int, every: int) -> None:
    """Over many trials and within one: with six steps and two to settle, a collection in every fourth would be in one
    or two of the six of every block, and never in a fourth of all."""
    size, draw = Size(steps, 0.1), random.Random(0)
    shares = []
    for _ in range(200):
        now, found, counted = draw.randrange(every), 0, 0
        for _ in range(4 * LEAST_PAIRS):
            now += SETTLE
            drawn = size.drawn(draw)
            found += sum((now + step) % every == 0 for step in range(drawn))
            counted, now = counted + drawn, now + drawn
        shares.append(found / counted * every)
    assert np.mean(shares) == pytest.approx(1, abs=0.05)
    assert np.std(shares) < 0.25
