"""Convolutions of many narrow groups as a few wide ones: the same numbers, by weights of 0 between groups that are put
together.

A CPU's kernels compute as many channels at once as vectors hold. Groups of one channel (depthwise) have kernels of
their own; groups of two to seven have none, and those of sixteen do several times the arithmetic in less time.
"""

import torch

from .passes import Way

_WIDE = 16
"""Channels of a group, at least, where so many are put together."""
_NARROW = 8
"""Channels of a group, at which vectors are full."""


def is_narrow(layer) -> bool:
    """Whether a convolution has groups of a few channels, and is none of one channel each."""
    least = min(layer.in_channels, layer.out_channels) // layer.groups
    is_depthwise = layer.groups == layer.in_channels == layer.out_channels
    return layer.groups > 1 and least < _NARROW and not is_depthwise and layer.padding_mode == "zeros"


class Regrouped:
    """The ways of a model's passes with such convolutions in fewer groups; whether there were any."""

    def __init__(self) -> None:
        self.seen = False

    def way(self, call, module) -> Way:
        """For one call."""
        plain = torch.nn.Conv2d._conv_forward

        def regrouped(layer, images, weight, bias):
            if not is_narrow(layer):
                return plain(layer, images, weight, bias)
            self.seen = True
            together = put_together(layer)
            return torch.nn.functional.conv2d(
                images,
                spread(weight, layer.groups, together),
                bias,
                layer.stride,
                layer.padding,
                layer.dilation,
                layer.groups // together,
            )

        def change() -> None:
            torch.nn.Conv2d._conv_forward = regrouped

        def put_back() -> None:
            torch.nn.Conv2d._conv_forward = plain

        return Way(change, put_back)


def put_together(layer) -> int:
    """How many groups make a wide one: the fewest by which they can be divided, or all."""
    least = min(layer.in_channels, layer.out_channels) // layer.groups
    return next(
        (few for few in range(1, layer.groups) if not layer.groups % few and few * least >= _WIDE), layer.groups
    )


def spread(weight, groups: int, together: int):
    """Weights (outputs, inputs of a group, height, width) for so many groups put together: blocks on a diagonal."""
    outputs, inputs, *kernel = weight.shape
    blocks = weight.view(groups // together, together, outputs // groups, 1, inputs, *kernel)
    diagonal = torch.eye(together, dtype=weight.dtype, device=weight.device)
    wide = blocks * diagonal.view(1, together, 1, together, 1, *[1] * len(kernel))
    wide = wide.reshape(outputs, together * inputs, *kernel)
    last = weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last)
    return wide.contiguous(memory_format=torch.channels_last) if last else wide
