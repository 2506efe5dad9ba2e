"""What launches that take turns say: which way a ratio points, per step and not per slice, and over the same steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from perfdoctor.gate.samples import Sample, of_turns, ratio_all_in, ratio_core
from perfdoctor.launch.control import Turn

MS = 1_000_000


def sample(shortest_ms: Sequence[float], mean_ms: Sequence[float] | None = None, steps: int = 5, **each: int) -> Sample:
    """A slice for each number, of so many steps."""
    means = mean_ms or shortest_ms
    turns = [
        Turn(steps=steps, wall_ns=round(steps * mean * MS), min_ns=round(shortest * MS), **each)
        for shortest, mean in zip(shortest_ms, means, strict=True)
    ]
    return Sample(turns, peak_rss_bytes=each.get("rss_kb", 0) * 1024)


def test_slower_now_is_above_zero() -> None:
    assert ratio_core(sample([10.0] * 5), sample([11.0] * 5)) == pytest.approx(math.log(1.1))
    assert ratio_all_in(sample([10.0] * 5), sample([11.0] * 5)) == pytest.approx(math.log(1.1))
    assert ratio_core(sample([11.0] * 5), sample([10.0] * 5)) == pytest.approx(-math.log(1.1))


def test_the_uncontended_step_is_the_shortest_and_the_other_the_mean() -> None:
    before, after = sample([10.0] * 5, [12.0] * 5), sample([10.0] * 5, [18.0] * 5)
    assert ratio_core(before, after) == pytest.approx(0.0)
    assert ratio_all_in(before, after) == pytest.approx(math.log(1.5))
    assert after.side[:2] == (pytest.approx(10.0), pytest.approx(18.0))


def test_slices_of_other_lengths_are_compared_by_the_step() -> None:
    assert ratio_all_in(sample([10.0] * 5, steps=5), sample([10.0] * 5, steps=20)) == pytest.approx(0.0)


def test_a_slice_in_which_somebody_else_was_there_does_not_count() -> None:
    assert ratio_core(sample([10.0] * 5), sample([10.0] * 4 + [500.0])) == pytest.approx(0.0)
    assert sample([10.0] * 4 + [500.0]).side.core_ms == pytest.approx(10.0)


def test_slices_are_compared_with_their_neighbours() -> None:
    """The machine slows down by a half in the middle, for both."""
    before = sample([10.0, 10.0, 15.0, 15.0, 15.0])
    after = sample([11.0, 11.0, 16.5, 16.5, 16.5])
    assert ratio_core(before, after) == pytest.approx(math.log(1.1))


def test_shares_are_of_all_steps() -> None:
    seen = sample([10.0, 30.0], steps=1, wait_ns=5 * MS, gc_ns=1 * MS, delay_ns=2 * MS).side
    assert (seen.wait_share, seen.gc_share, seen.delay_share) == (0.25, 0.05, 0.1)
    assert sample([10.0], delay_ns=-1).side.delay_share == 0.0  # the system does not say


def test_collections_are_counted_for_each_generation_per_100_steps() -> None:
    assert sample([10.0, 10.0], steps=10, gen0=4, gen1=2, gen2=1).side.collections == (40.0, 20.0, 10.0)


def test_a_pair_is_noted_before_first() -> None:
    was = sample([10.0] * 5, wait_ns=5 * MS, gc_ns=0, gen0=1, rss_kb=100, delay_ns=10 * MS)
    now = sample([12.0] * 5, wait_ns=0, gc_ns=6 * MS, gen0=2, rss_kb=300, delay_ns=30 * MS)
    pair = of_turns(was, now, None)
    assert (pair.core, pair.all_in, pair.control) == (pytest.approx(math.log(1.2)), pytest.approx(math.log(1.2)), None)
    assert pair.both("core_ms") == (pytest.approx(10.0), pytest.approx(12.0))
    assert pair.both("wait_share") == (pytest.approx(0.1), 0.0)
    assert pair.both("gc_share") == (0.0, pytest.approx(0.1))
    assert pair.both("peak_rss_bytes") == (100 * 1024, 300 * 1024)
    assert pair.both("collections") == ((20.0, 0.0, 0.0), (40.0, 0.0, 0.0))
    assert max(pair.both("delay_share")) == pytest.approx(0.5)
    assert of_turns(was, now, now).control == pair.core
