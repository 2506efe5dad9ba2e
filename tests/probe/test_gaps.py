"""Pauses between operators: short ones are launches, long ones the job's own code."""

from __future__ import annotations

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.gaps import long_ns, stray_ms


@pytest.mark.parametrize(
    ("spans", "pauses"),
    [
        ([], 0),
        ([(0, 10), (15, 20)], 0),
        ([(0, 10), (209, 300)], 0),
        ([(0, 10), (210, 300)], 200),
        ([(0, 1000), (100, 200), (700, 800), (1300, 1400)], 300),  # others lie inside the first
        ([(1300, 1400), (0, 1000)], 300),
    ],
)
def test_pauses_from_a_fifth_of_a_millisecond_on_count(spans: list[tuple[int, int]], pauses: int) -> None:
    in_ns = [(1000 * start, 1000 * end) for start, end in spans]
    assert long_ns({7: in_ns}) == 1000 * pauses


def test_the_thread_with_the_most_operators_counts() -> None:
    beside = [(0, 1), (9_000_000, 9_000_001)]
    assert long_ns({1: beside, 2: [(0, 1), (5, 6), (7, 8)]}) == 0
    assert long_ns({}) == 0


@pytest.mark.parametrize(
    ("waited", "expected"),
    [(None, 0.0), ((0, 0), 0.0), ((6000, 1), 3.0), ((6000, 2), 3.0), ((60_000, 20), 3.0), ((60_000, 200), 0.3)],
)
def test_two_waits_for_a_cpu_may_fall_into_one_operator(waited: tuple[int, int] | None, expected: float) -> None:
    after = None if waited is None else (100 + waited[0], 7 + waited[1])
    assert stray_ms((100, 7), after, 2) == pytest.approx(expected)
