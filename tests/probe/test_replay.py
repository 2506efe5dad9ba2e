"""How calls are timed against each other, on a clock that the calls themselves move."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import replay

MS = 1_000_000


class Clock:
    """Stands for `time`."""

    def __init__(self) -> None:
        self.now = 0
        self.without = 0
        """Of this, without a CPU."""

    def call(self, *took_ms: float) -> Callable[[], None]:
        """Takes so long, one after another; from then on as long as the last."""
        left = list(took_ms)

        def run() -> None:
            self.now += int((left.pop(0) if len(left) > 1 else left[0]) * MS)

        return run

    def disturbed(self, took_ms: float, without_ms: float) -> Callable[[], None]:
        """Takes so long, and stands without a CPU for so long."""

        def run() -> None:
            self.now += int((took_ms + without_ms) * MS)
            self.without += int(without_ms * MS)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clocks = SimpleNamespace(perf_counter_ns=lambda: clock.now, thread_time_ns=lambda: clock.now - clock.without)
    monkeypatch.setattr(replay, "time", clocks)
    return clock


def test_a_slow_first_call_is_not_the_timing(clock: Clock) -> None:
    assert replay.in_turns([clock.call(2.0), clock.call(55.0, 0.5)]) == [2.0, 0.5]


def test_the_fastest_round_counts(clock: Clock) -> None:
    assert replay.in_turns([clock.call(9.0, 3.0, 1.0, 2.0)]) == [1.0]


def test_what_takes_far_too_long_is_called_once(clock: Clock) -> None:
    assert replay.in_turns([clock.call(500.0, 1.0)]) == [500.0]
    assert clock.now == 500 * MS


def test_time_without_a_cpu_does_not_count(clock: Clock) -> None:
    assert replay.in_turns([clock.disturbed(6.0, 5.0), clock.disturbed(1.5, 0.0)]) == [6.0, 1.5]


def test_rounds_end_at_the_limit(clock: Clock) -> None:
    replay.in_turns([clock.call(30.0)])
    assert clock.now == (1 + 2) * 30 * MS


def test_short_calls_are_made_in_a_row(clock: Clock) -> None:
    assert replay.in_turns([clock.call(0.01)]) == [0.01]
    assert clock.now == int((1 + 7 * 10) * 0.01 * MS)


def test_what_disturbs_itself_is_timed_by_the_round_in_the_middle(clock: Clock) -> None:
    assert replay.in_turns([clock.call(9.0, 1.0, 7.0, 3.0, 5.0)], of=statistics.median) == [5.0]
