"""A queue of batches played through: what a slow one holds up, and what working further ahead makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from perfdoctor.evidence.causes import Bursts, Overlap, bursts
from perfdoctor.evidence.causes.bursts import wait_ms
from perfdoctor.evidence.model import Fetch, Loader, Missing

MODEL = Overlap(
    step_ms=12.0, wait_ms=2.0, make_ms=10.0, make_cpu_ms=1.0, train_ms=10.0, train_cpu_ms=9.0, usable_cpus=4.0,
    handover_ms=(0.3, 2.0),
)  # fmt: skip
UNEVEN = tuple(100.0 if i % 25 == 7 else 8.0 for i in range(200))
FETCH = Fetch(200, 11.7, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, Missing("not seen"), each_ms=UNEVEN)
LOADER = samples.with_(samples.LOADER, batch_size=8, fetch=FETCH)


def played(loader: Loader = LOADER, fetch: Fetch = FETCH, model: Overlap = MODEL) -> Bursts | None:
    return bursts(loader, fetch, model)


def test_even_batches_are_there_when_they_are_asked_for() -> None:
    assert wait_ms([8.0] * 100, workers=1, prefetch=2, training_ms=10.0) == 0.0


def test_workers_that_cannot_keep_up_are_waited_for_at_each_batch() -> None:
    assert wait_ms([30.0] * 100, workers=2, prefetch=2, training_ms=10.0) == pytest.approx(5.0, abs=0.3)
    assert wait_ms([30.0] * 100, workers=2, prefetch=32, training_ms=10.0) < 6.0


def test_what_a_slow_batch_costs_beyond_the_queue_is_waited_for() -> None:
    """One worker; the slow batch is begun when the loop has taken the one `prefetch` before it, and trains on those in
    between meanwhile."""
    slow = [1.0] * 12 + [100.0] + [1.0] * 7
    for prefetch in (2, 4, 8):
        assert wait_ms(slow, 1, prefetch, training_ms=10.0) * len(slow) == pytest.approx(100 - prefetch * 10)


def test_more_ahead_never_makes_it_worse() -> None:
    waits = [wait_ms(UNEVEN, 2, prefetch, 10.0) for prefetch in (1, 2, 4, 8, 16)]
    assert waits == sorted(waits, reverse=True) and waits[0] > 2 * waits[-1]


def test_the_first_factor_that_does_is_taken() -> None:
    found = played()
    assert found is not None
    waits = {factor: wait_ms(UNEVEN, 2, factor, 10.0) for factor in (2, 4, 8, 16, 32)}
    enough = waits[2] - 0.8 * (waits[2] - waits[32])
    assert found.factor == min(factor for factor in waits if waits[factor] <= enough) == 8
    assert (found.now_ms, found.ahead_ms) == (pytest.approx(waits[2]), pytest.approx(waits[8]))
    assert (found.slow_ms, found.typical_ms) == (8.0, 8.0), "only one batch in 25 is slow"


@pytest.mark.parametrize(
    ("loader", "fetch"),
    [
        ({"num_workers": 0}, {}),
        ({"prefetch_factor": 32}, {}),
        ({"steady_batches_per_step": 0.0}, {}),
        ({}, {"each_ms": UNEVEN[:39]}),
        ({}, {"each_ms": ()}),
        # On average too slow: more workers are wanted.
        ({}, {"each_ms": tuple(ms + 8.0 for ms in UNEVEN)}),
    ],
)
def test_nothing_is_said_where_it_is_not_known_or_would_not_help(loader: dict, fetch: dict) -> None:
    assert played(replace(LOADER, **loader), replace(FETCH, **fetch)) is None


def test_batches_of_a_step_with_several_are_played_one_by_one() -> None:
    found = played(replace(LOADER, steady_batches_per_step=2.0), model=replace(MODEL, train_ms=20.0))
    assert found is not None and found.now_ms == pytest.approx(2 * wait_ms(UNEVEN, 2, 2, 10.0))
