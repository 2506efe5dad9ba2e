"""Warm-up and slices."""

from __future__ import annotations

import pytest

from perfdoctor.gate.plan import FEWEST, SLICES, is_warm, slice_steps, slices_for

MS = 1_000_000


@pytest.mark.parametrize(
    ("shortest", "warm"),
    [
        ([10, 10, 10], False),
        ([10, 10, 10, 10], True),
        ([30, 20, 12, 10], False),
        ([30, 20, 10, 10, 10.4], True),
        ([10, 20] * 10, False),
        ([10, 20] * 20, True),
    ],
)
def test_warm_is_when_three_slices_agree_or_patience_ends(shortest: list[int], warm: bool) -> None:
    assert is_warm(shortest) is warm


@pytest.mark.parametrize(("step_ms", "steps"), [(0.5, 100), (3, 17), (10, 5), (50, 5), (500, 2)])
def test_a_slice_is_fifty_milliseconds_or_five_steps(step_ms: float, steps: int) -> None:
    assert slice_steps(step_ms * MS) == steps


def test_long_steps_get_fewer_slices() -> None:
    assert slices_for(10 * MS, 5) == SLICES
    assert slices_for(500 * MS, 2) == 20
    assert slices_for(5000 * MS, 2) == FEWEST
