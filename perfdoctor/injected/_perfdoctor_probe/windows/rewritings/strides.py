"""Convolutions of which every so many results are read, and none in between."""

from math import prod

import torch

from .followed import CONVOLUTION, Link, Other, part_of

_LEAST = 2
"""Results for each one that is read."""


def afterwards(found: Link, tensor) -> "Other | None":
    """`conv(x)[..., ::k]` as a convolution with that stride."""
    if tensor.dim() != len(found.shape) or tuple(tensor.shape[:2]) != found.shape[:2]:
        return None
    if tensor.stride()[:2] != found.strides[:2]:
        return None
    own, read = found.strides[2:], tensor.stride()[2:]
    if any(each % one for one, each in zip(own, read)):
        return None
    steps = [each // one for one, each in zip(own, read)]
    starts = _starts(tensor.storage_offset(), own)
    if starts is None or prod(steps) < _LEAST or prod(tensor.shape) * _LEAST > prod(found.shape):
        return None
    image, weight, bias, stride, padding, dilation, transposed, added, groups = found.args
    if transposed:
        return None
    stride = [one * times for one, times in zip(stride, steps)]

    def of_image():
        """And how much it still is to be padded."""
        if not any(starts):
            return image, padding
        around = [side for one in reversed(padding) for side in (one, one)]
        wider = torch.nn.functional.pad(image, around)
        first = tuple(slice(start * one, None) for start, one in zip(starts, found.args[3]))
        return wider[(..., *first)], [0] * len(padding)

    def make():
        whole, around = of_image()
        made = CONVOLUTION(whole, weight, bias, stride, around, dilation, False, added, groups)
        return made[(..., *(slice(size) for size in tensor.shape[2:]))]

    def backward(gradient):
        whole, around = of_image()
        sizes = None if bias is None else [weight.shape[0]]
        which = [image.requires_grad, True, bias is not None]
        rest = sizes, stride, around, dilation, False, added, groups, which
        return torch.ops.aten.convolution_backward(gradient, whole, weight, *rest)

    return Other(
        "strided",
        make,
        [found],
        found.shape,
        backward=backward,
        instead_of=tensor,
        replaces_last=False,
        part=part_of(tensor),
    )


def _starts(offset: int, strides: tuple) -> "list[int] | None":
    """The first result that is read, along each side; None where that is not all that the offset skips."""
    starts = dict.fromkeys(range(len(strides)), 0)
    for side in sorted(starts, key=lambda one: -strides[one]):
        starts[side], offset = divmod(offset, strides[side])
    return None if offset else list(starts.values())
