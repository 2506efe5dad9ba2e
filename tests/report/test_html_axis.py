from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.report import wording
from perfdoctor.report.html.axis import Interval, axis

FACTORS = st.floats(0.001, 1000, allow_nan=False)


def predicted(low: float, high: float) -> Interval:
    return Interval("predicted", low, high, "")


def test_speed_ups_multiply_so_equal_factors_are_equally_far_apart() -> None:
    common = axis([predicted(0.5, 4)])
    one = common.place(1)
    assert common.place(2) - one == pytest.approx(one - common.place(0.5), abs=0.02)
    assert common.place(4) - common.place(2) == pytest.approx(common.place(2) - one, abs=0.02)


def test_small_gains_look_small() -> None:
    common = axis([predicted(1.01, 1.02)])
    mark = common.mark(predicted(1.01, 1.02))
    assert mark.width < 10
    assert common.high > 1.2


def test_without_any_interval_there_is_still_an_axis() -> None:
    assert "1x" in [tick.label for tick in axis([]).ticks]


def test_a_range_is_open_where_the_report_tells_its_lower_end_only() -> None:
    for low, high in ((1.2, 2.9), (1.2, 3.1), (1.0, 4.0)):
        assert predicted(low, high).is_open == wording.factors(low, high).startswith("at least")
    assert not Interval("measured", 1.2, 4.0, "", 2.0).is_open


@given(st.lists(st.tuples(FACTORS, FACTORS), max_size=6))
def test_all_lies_on_the_axis_and_labels_keep_apart(pairs: list[tuple[float, float]]) -> None:
    intervals = [Interval("measured", min(pair), max(pair), "", pair[0]) for pair in pairs]
    common = axis(intervals)
    for interval in intervals:
        mark = common.mark(interval)
        assert 0 <= mark.start <= mark.start + mark.width <= 100.01
        assert mark.point is not None and mark.start - 0.01 <= mark.point <= mark.start + mark.width + 0.01
    places = [tick.place for tick in common.ticks]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= 100
    assert all(after - before >= 10.9 for before, after in pairwise(places))
    assert sum(tick.is_one for tick in common.ticks) == 1
