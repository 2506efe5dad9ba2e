"""What being told of calls takes is measured beside processes that take the CPU away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from following import MS, NOW, spend
from following import followed as followed_by_a_window

from perfdoctor.injected._perfdoctor_probe.windows import followed


def looks() -> Iterator[int]:
    """At the standing clock, with another process's turn before the second look. A generator, as those are not
    followed."""
    yield NOW[0]
    NOW[0] += 5 * MS
    while True:
        yield NOW[0]


def bank() -> np.ndarray:
    spend()
    return np.array([max(0.0, 1 - abs(place / 16 - 4)) for place in range(256)])


@pytest.mark.usefixtures("standing_clock")
def test_a_process_that_takes_the_cpu_meanwhile_does_not_make_functions_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "_clock", looks().__next__)
    began = NOW[0]
    (row,) = followed_by_a_window(lambda: [bank() for _ in range(8)], __file__, steps=3)
    assert NOW[0] - began == (5 + 3 * 8) * MS
    assert row["function"] == "bank"
    assert row["ms_per_step"] == pytest.approx(8)


@pytest.mark.usefixtures("standing_clock")
def test_where_too_much_is_taken_off_calls_take_what_they_took_with_nobody_listening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the CPU was slower while the cost was measured."""
    monkeypatch.setattr(followed.Follower, "_cost_ns", lambda self: 5_000)
    (row,) = followed_by_a_window(lambda: [bank() for _ in range(8)], __file__, steps=3)
    assert row["ms_per_step"] == pytest.approx(8)
