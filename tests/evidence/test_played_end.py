"""That playing through batches and steps comes to its end, whatever the numbers are."""

from __future__ import annotations

import pytest

from perfdoctor.evidence.causes.played import Queue, Turn, play


@pytest.mark.parametrize("made_ms", [9.223372036854776e18, 1.1e17, 3e15])
def test_numbers_beyond_all_times_come_to_an_end(made_ms: float) -> None:
    queue = Queue(2, 2, 0.7, 1.0, 1.5, 0.6)
    assert play((made_ms, made_ms / 3), (Turn(made_ms / 7, 1.0), Turn(1.0, made_ms)), queue) > 0
