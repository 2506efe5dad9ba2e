"""What being told of calls takes is measured beside processes that take the CPU away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from following import followed as followed_by_a_window

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import followed

MS = 1_000_000
_NOW = [0]


def looks() -> Iterator[int]:
    """At a clock that stands still but for what `spend` takes, and for another process's turn before the second look.
    A generator, as those are not followed."""
    yield _NOW[0]
    _NOW[0] += 5 * MS
    while True:
        yield _NOW[0]


def spend(ms: int) -> None:
    _NOW[0] += ms * MS


def bank() -> np.ndarray:
    spend(1)
    return np.array([max(0.0, 1 - abs(place / 16 - 4)) for place in range(256)])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the thread's own waits unknown, as where the kernel does not count them."""
    monkeypatch.setattr(followed, "_clock", looks().__next__)
    monkeypatch.setattr(followed, "_delay", lambda: 0)
    monkeypatch.setattr(timeline, "_clock", lambda: _NOW[0])


def test_a_process_that_takes_the_cpu_meanwhile_does_not_make_functions_free() -> None:
    (row,) = followed_by_a_window(lambda: [bank() for _ in range(8)], __file__, steps=3)
    assert _NOW[0] == (5 + 3 * 8) * MS
    assert row["function"] == "bank"
    assert row["ms_per_step"] == pytest.approx(8)
