"""Products of matrices of integers: no library of linear algebra has them, and those of floating-point numbers are
several times as fast."""

import torch

from .followed import Other

_EXACT = ((torch.float32, 1 << 24), (torch.float64, 1 << 53))
"""Integers below which each is a number of the type, and sums of them are exact."""


def in_floating_point(args: tuple) -> "Other | None":
    """`a @ b` as the same of floating-point numbers, in the smaller type that holds each sum exactly."""
    one, other = args
    if one.is_floating_point() or one.is_complex() or not one.numel() or not other.numel():
        return None
    largest = one.shape[-1] * _largest(one) * _largest(other)
    dtype = next((dtype for dtype, end in _EXACT if largest < end), None)
    if dtype is None:
        return None

    def make():
        return (one.to(dtype) @ other.to(dtype)).to(one.dtype)

    return Other("integers", make, [], (*one.shape[:-1], other.shape[-1]))


def _largest(tensor) -> int:
    low, high = torch.aminmax(tensor)
    return max(-int(low), int(high))
