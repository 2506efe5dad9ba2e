"""Convolutions along the height of images that are one number wide, computed along their width instead: the same sums.

A CPU's kernels compute several neighbours of a row at a time, and such a row has one.
"""

import torch

from .passes import Way


class Turned:
    """The ways of a model's passes with such convolutions turned; whether there were any."""

    def __init__(self) -> None:
        self.seen = False

    def way(self, call, module) -> Way:
        """For one call."""
        plain = torch.nn.Conv2d._conv_forward

        def turned(layer, images, weight, bias):
            if not _is_upright(layer, images, weight):
                return plain(layer, images, weight, bias)
            self.seen = True
            strides, paddings, dilations = (tuple(one)[::-1] for one in (layer.stride, layer.padding, layer.dilation))
            # Neither copies anything: a dimension of one number may stand anywhere.
            images, weight = images.transpose(2, 3), weight.transpose(2, 3)
            made = torch.nn.functional.conv2d(images, weight, bias, strides, paddings, dilations, layer.groups)
            return made.transpose(2, 3)

        def change() -> None:
            torch.nn.Conv2d._conv_forward = turned

        def put_back() -> None:
            torch.nn.Conv2d._conv_forward = plain

        return Way(change, put_back)


def _is_upright(layer, images, weight) -> bool:
    """Whether there are several numbers along the height, and one along the width."""
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return plain and images.dim() == 4 and images.shape[3] == weight.shape[3] == 1 and images.shape[2] > 1
