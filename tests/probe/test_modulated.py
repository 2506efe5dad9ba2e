"""Convolutions whose kernels are one, scaled for each sample."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from operands import drawn
from rewriting import watched
from torch.nn import functional

PICTURES, STYLES, KERNEL = drawn(8, 16, 32, 32), drawn(8, 16, learns=False), drawn(24, 16, 3, 3)
SOUNDS, SHORT = drawn(8, 16, 600), drawn(24, 16, 5)
OTHERS = drawn(8, 24, 16, 3, 3, learns=False)


def modulated() -> torch.Tensor:
    kernels = KERNEL * (STYLES + 1).view(8, 1, 16, 1, 1)
    kernels = kernels * torch.rsqrt(kernels.square().sum((2, 3, 4), keepdim=True) + 1e-8)
    return functional.conv2d(PICTURES.view(1, -1, 32, 32), kernels.flatten(0, 1), padding=1, groups=8)


def of_sounds() -> torch.Tensor:
    kernels = SHORT * (STYLES + 1).view(8, 1, 16, 1)
    return functional.conv1d(SOUNDS.view(1, -1, 600), kernels.flatten(0, 1), stride=2, groups=8)


@pytest.mark.parametrize(("step", "shape"), [(modulated, [8, 24, 16, 3, 3]), (of_sounds, [8, 24, 16, 5])])
def test_one_kernel_between_two_scalings_is_tried(step: Callable[[], torch.Tensor], shape: list[int]) -> None:
    (row,) = [row for row in watched(step) if row["kind"] == "modulated"]
    lines = range(step.__code__.co_firstlineno + 1, step.__code__.co_firstlineno + 5)
    assert row["at"] in lines and row["shape"] == shape
    assert row["forward_ms"] > row["other_forward_ms"] and row["backward_ms"] > row["other_backward_ms"] > 0


def kernels_of_their_own() -> torch.Tensor:
    kernels = OTHERS * (KERNEL.mean() + 1)
    return functional.conv2d(PICTURES.view(1, -1, 32, 32), kernels.flatten(0, 1), padding=1, groups=8)


def in_groups() -> torch.Tensor:
    return functional.conv2d(PICTURES[:1], KERNEL[:, :4] * 2, padding=1, groups=4)


@pytest.mark.parametrize("step", [kernels_of_their_own, in_groups])
def test_kernels_that_differ_stay_as_they_are(step: Callable[[], torch.Tensor]) -> None:
    assert [row for row in watched(step) if row["kind"] == "modulated"] == []
