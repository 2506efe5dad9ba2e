"""That playing through batches and steps comes to its end, whatever the numbers are."""

from __future__ import annotations

import pytest

from perfdoctor.evidence.causes.played import Queue, Turn, play


@pytest.mark.parametrize("prefetch", [-3, 0, 10**18])
def test_a_queue_of_any_length_is_played(prefetch: int) -> None:
    queue = Queue(2, prefetch, 0.7, 1.0, 2.0)
    assert 2.0 < play((4.0, 4.0), (Turn(3.0, 0.0),), queue) < 4.0


@pytest.mark.parametrize("made_ms", [9.223372036854776e18, 1.1e17, 3e15])
def test_numbers_beyond_all_times_come_to_an_end(made_ms: float) -> None:
    queue = Queue(2, 2, 0.7, 1.0, 1.5, 0.6)
    assert play((made_ms, made_ms / 3), (Turn(made_ms / 7, 1.0), Turn(1.0, made_ms)), queue) > 0


def test_training_that_keeps_no_cpu_ends_all_the_same() -> None:
    queue = Queue(workers=1, prefetch=2, busy=0.8, team=0.0, cpus=4.0)
    assert play((26.0,), (Turn(30.0, 40.0),), queue) == pytest.approx(70.0)
