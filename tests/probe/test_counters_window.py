"""The counters window: one call more is counted as exactly one more, and the job does the same."""

from __future__ import annotations

import pytest

STEPS = 4


def counted(observed):
    observed.same()
    observed.healthy()
    window = observed.rank.counters
    assert window is not None
    assert window.missing == ""
    assert (window.first, window.steps) == (10, STEPS)
    return window


@pytest.fixture
def plain(observe):
    return counted(observe("counted.py", "0", "0", "0", windows="counters"))


@pytest.fixture
def more(observe):
    return counted(observe("counted.py", "1", "2", "1", windows="counters,sites,ops"))


def test_calls_are_named(plain, more):
    added = {name: n - plain.calls.get(name, 0) for name, n in more.calls.items() if n != plain.calls.get(name, 0)}
    assert added == {"aten::item": STEPS, "aten::clone": 2 * STEPS, "aten::to": STEPS}


def test_totals_go_with_them(plain, more):
    assert more.syncs - plain.syncs == STEPS
    assert more.conversions - plain.conversions == STEPS
    assert more.copies - plain.copies == 3 * STEPS
    assert more.allocated_bytes > plain.allocated_bytes
    assert more.flops == plain.flops > 0


def test_the_losses_are_kept(plain, more):
    assert len(plain.losses) == STEPS
    assert plain.losses == more.losses
