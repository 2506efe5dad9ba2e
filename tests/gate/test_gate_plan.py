"""Warm-up and slices."""

from __future__ import annotations

import pytest

from perfdoctor.gate.plan import FEWEST, SLICES, is_warm, slice_steps, slices_for, why_no_control

MS = 1_000_000


@pytest.mark.parametrize(
    ("shortest", "warm"),
    [
        ([10, 10, 10], False),
        ([10, 10, 10, 10], True),
        ([30, 20, 12, 10], False),
        ([50, 10, 10, 10], False),
        ([50, 10, 10, 10, 10], True),
        ([30, 20, 10, 10, 10.4], False),
        ([30, 20, 10, 10, 10.4, 9.8], True),
        ([10, 13, 16, 11], True),
        ([1000 * 0.9**n for n in range(39)], False),
        ([1000 * 0.9**n for n in range(40)], True),
    ],
)
def test_warm_is_when_steps_get_no_faster_or_patience_ends(shortest: list[int], warm: bool) -> None:
    assert is_warm(shortest) is warm


@pytest.mark.parametrize(("step_ms", "steps"), [(0.5, 100), (3, 17), (10, 5), (50, 5), (500, 2)])
def test_a_slice_is_fifty_milliseconds_or_five_steps(step_ms: float, steps: int) -> None:
    assert slice_steps(step_ms * MS) == steps


def test_long_steps_get_fewer_slices() -> None:
    assert slices_for(10 * MS, 5) == SLICES
    assert slices_for(500 * MS, 2) == 20
    assert slices_for(5000 * MS, 2) == FEWEST


@pytest.mark.parametrize(
    ("pair_s", "left_s", "available_gib", "on_device", "why"),
    [
        (10, 600, 8, False, ""),
        (16, 600, 8, False, "too long"),  # 8 pairs with three launches: more than three minutes
        (10, 200, 8, False, "too long"),  # no time for fresh pairs
        (10, 600, 4, False, "no memory"),
        (10, 600, 8, True, "device"),
    ],
)
def test_a_third_copy_needs_time_and_memory(
    pair_s: float, left_s: float, available_gib: int, on_device: bool, why: str
) -> None:
    said = why_no_control(pair_s, (8, 16), left_s, 1 << 30, available_gib << 30, on_device)
    assert bool(said) == bool(why)
    assert why in said
