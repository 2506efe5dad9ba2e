"""The counters window: one call more is counted as exactly one more, and the job does the same."""

from __future__ import annotations

import pytest

from perfdoctor.recording.operators import Counters

pytestmark = pytest.mark.slow

STEPS = 4


def counted(observed):
    observed.same()
    observed.healthy()
    window = observed.rank.counters
    assert isinstance(window, Counters)
    assert (window.first_step, window.steps) == (10, STEPS)
    return window


@pytest.fixture
def plain(observe):
    return counted(observe("counted.py", "0", "0", "0", windows="counters"))


@pytest.fixture
def more(observe):
    return counted(observe("counted.py", "1", "2", "1", windows="counters,sites,ops"))


def test_calls_are_named(plain, more):
    before, after = dict(plain.calls), dict(more.calls)
    added = {name: n - before.get(name, 0) for name, n in after.items() if n != before.get(name, 0)}
    assert added == {"aten::item": 1, "aten::clone": 2, "aten::to": 1}


def test_totals_go_with_them(plain, more):
    assert more.syncs - plain.syncs == 1
    assert more.conversions - plain.conversions == 1
    assert more.copies - plain.copies == 3
    assert more.allocated_bytes > plain.allocated_bytes
    assert more.flops == plain.flops > 0


def test_the_losses_are_kept(plain, more):
    assert len(plain.losses) == STEPS
    assert plain.losses == more.losses
