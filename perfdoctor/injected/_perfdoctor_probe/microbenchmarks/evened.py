"""Convolutions that make a few channels more or less, a multiple of sixteen: channels of zeros beside the same numbers,
or all but the last.

A CPU computes convolutions in blocks of as many channels as its vectors hold: with a norm and a ReLU one of 16 took
12.6 ms, of 17 took 25.1, and of 32 took 35.1. With its channels last a CPU computes norms, activations and pooling in
blocks of as many channels as its vectors hold, and what is left of them one by one: a norm, a ReLU and a pooling of 15
channels took 32 ms, and of 16 took 8.
"""

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from ..records import even_channels
from .passes import Way


def is_odd(layer) -> bool:
    """Whether a convolution is a few channels off a multiple."""
    return layer.groups == 1 and even_channels(layer.out_channels) != layer.out_channels


class Evened:
    """The ways of a model's passes without such convolutions; whether there were any."""

    def __init__(self) -> None:
        self.seen = False

    def way(self, call, module) -> Way:
        """For one call. What takes other channels is given zeros for more, and loses the last for less; a layer that
        cannot, raises."""
        before = torch.nn.Conv2d._conv_forward, _BatchNorm.forward, torch.nn.Linear.forward
        convolve, normalize, multiply = before

        def convolved(layer, images, weight, bias):
            more = images.shape[1] - layer.in_channels
            if layer.groups == 1:
                others = even_channels(layer.out_channels) - layer.out_channels
                self.seen |= others != 0
                return convolve(layer, images, _padded(weight, others, more), _padded(bias, others))
            if not more:
                return convolve(layer, images, weight, bias)
            if layer.groups != layer.in_channels or layer.out_channels != layer.in_channels:
                raise ValueError("groups of channels cannot be others")
            weight, bias = _padded(weight, more), _padded(bias, more)
            return functional.conv2d(images, weight, bias, layer.stride, layer.padding, layer.dilation, images.shape[1])

        def normalized(layer, given):
            more = given.shape[1] - layer.num_features
            if not more:
                return normalize(layer, given)
            held = (layer.running_mean, layer.running_var, layer.weight, layer.bias)
            mean, variance, weight, bias = (_padded(one, more) for one in held)
            from_batch = layer.training or mean is None
            return functional.batch_norm(
                given, mean, variance, weight, bias, from_batch, layer.momentum or 0.1, layer.eps
            )

        def multiplied(layer, given):
            more = given.shape[-1] - layer.in_features
            if not more:
                return multiply(layer, given)
            return functional.linear(given, functional.pad(layer.weight, (0, more)), layer.bias)

        def put(convolve, normalize, multiply) -> None:
            torch.nn.Conv2d._conv_forward = convolve
            _BatchNorm.forward = normalize
            torch.nn.Linear.forward = multiply

        return Way(lambda: put(convolved, normalized, multiplied), lambda: put(*before))


def _padded(tensor, outputs: int, inputs: int = 0):
    """With so many more, or less, of its first dimension and of its second, in the same layout."""
    if tensor is None or not (outputs or inputs):
        return tensor
    if tensor.dim() == 1:
        return functional.pad(tensor, (0, outputs))
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    padded = functional.pad(tensor, (*[0, 0] * (tensor.dim() - 2), 0, inputs, 0, outputs))
    return padded.contiguous(memory_format=torch.channels_last) if last else padded
