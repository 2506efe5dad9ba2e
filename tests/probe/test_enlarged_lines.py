"""Where a picture that is enlarged before a 1x1 convolution is told: where one function makes both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch.nn import functional

SMALL, WEIGHTS = torch.randn(4, 64, 16, 16), torch.randn(8, 64, 1, 1, requires_grad=True)


def enlarge(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=4.0, mode="nearest")


def project(x: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, WEIGHTS)


def both() -> torch.Tensor:
    return project(enlarge(SMALL + 0))


def helped() -> torch.Tensor:
    return functional.conv2d(enlarge(SMALL + 0), WEIGHTS)


def apart() -> torch.Tensor:
    x = enlarge(SMALL + 0)
    return project(x)


def plain() -> torch.Tensor:
    x = functional.interpolate(SMALL + 0, scale_factor=4.0, mode="nearest")
    return functional.conv2d(x, WEIGHTS)


@pytest.mark.parametrize("step", [both, helped, apart, plain])
def test_it_is_told_where_one_function_makes_both(step: Callable[[], torch.Tensor]) -> None:
    (found,) = watched(step)
    assert (found["kind"], found["at"]) == ("enlarged", step.__code__.co_firstlineno + 1)
