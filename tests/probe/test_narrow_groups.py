"""Convolutions of many narrow groups, timed with several in one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import groups, replay
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.groups import put_together, timings

FLOAT = "float"


@pytest.mark.parametrize(
    ("weight", "count", "together"),
    [
        ((64, 2, 3, 3), 32, 8),
        ((24, 2, 3, 3), 12, 12),
        ((12, 3, 1, 1), 4, 4),
        ((32, 1, 3, 3), 16, 16),
        ((64, 64, 3, 3), 1, None),
        ((64, 1, 3, 3), 64, None),
        ((64, 8, 3, 3), 8, None),
    ],
    ids=["of 2", "of 2, two dozen in all", "of 3, a dozen in all", "of 1 to 2", "none", "depthwise", "wide"],
)
def test_as_few_groups_are_put_together_as_fill_a_vector(
    weight: tuple[int, ...], count: int, together: int | None
) -> None:
    assert put_together(list(weight), count) == together


def _noted(channels: int, count: int, *, back: bool = False) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """An operator of the window, and what it was called with."""
    images, weight = [2, channels, 12, 12], [channels, channels // count, 3, 3]
    plain = [[1, 1], [1, 1], [1, 1], False, [0, 0], count]
    name = "convolution_backward" if back else "convolution"
    op = {"name": name, "shapes": "", "dtype": "float32", "total_ms_per_step": 3.0, "calls_per_step": 1.0}
    if back:
        kinds = [FLOAT, FLOAT, FLOAT, "", "", "", "", "", "", "", ""]
        called = (
            "aten::convolution_backward",
            [images, images, weight, [], [], [], [], [], [], [], []],
            kinds,
            [None, None, None, [0], *plain, [True, True, False]],
        )
    else:
        called = (
            "aten::convolution",
            [images, weight, [], [], [], [], [], [], []],
            [FLOAT, FLOAT, "", "", "", "", "", "", ""],
            [None, None, None, *plain],
        )
    return op, called


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
def test_both_ways_are_called_with_the_shapes_that_they_need(monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    seen: list[list[tuple[int, ...]]] = []

    def in_turns(ways: list[Any]) -> list[float]:
        made = [way() for way in ways]
        seen.append([tuple(one[1].shape) if back else tuple(one.shape) for one in made])
        return [2.0, 1.0]

    monkeypatch.setattr(replay, "in_turns", in_turns)
    op, called = _noted(64, 32, back=back)
    (row,) = timings([op], [called])
    assert (row["groups"], row["weight_shape"], row["now_ms"], row["wide_ms"]) == (32, [64, 2, 3, 3], 2.0, 1.0)
    expected = [(64, 2, 3, 3), (64, 16, 3, 3)] if back else [(2, 64, 12, 12)] * 2
    assert seen == [expected]


def test_other_operators_are_left_out() -> None:
    op, called = _noted(64, 64)
    assert timings([op], [called]) == []
    assert timings([{**op, "dtype": "float64"}], [_noted(64, 32)[1]]) == []


def test_wide_groups_with_zeros_between_make_the_same_numbers() -> None:
    """Why they may be compared."""
    images, weight = torch.randn(2, 24, 9, 9), torch.randn(24, 2, 3, 3)
    together = groups.put_together([24, 2, 3, 3], 12)
    assert together == 12
    wide = torch.zeros(24, 24, 3, 3)
    for group in range(12):
        wide[2 * group : 2 * group + 2, 2 * group : 2 * group + 2] = weight[2 * group : 2 * group + 2]
    torch.testing.assert_close(
        functional.conv2d(images, wide), functional.conv2d(images, weight, groups=12), rtol=1e-4, atol=1e-4
    )
