"""Convolutions with a kernel for each sample, in as many groups, where those kernels are one, scaled."""

import torch

from .followed import CONVOLUTION, Other


def by_sample(args: tuple) -> "Other | None":
    """`conv(x.reshape(1, b * c, h, w), kernels, groups=b)` as a convolution with one kernel, whose channels are scaled
    before and after. Whether the kernels are so many times one is not asked: what comes out is compared."""
    x, kernels, bias, stride, padding, dilation, transposed, output_padding, groups = args
    whole = x.shape[0] == 1 and groups > 1 and not transposed and bias is None
    if not whole or isinstance(kernels, torch.nn.Parameter) or kernels.shape[0] == groups:
        return None
    samples = x.reshape(groups, -1, *x.shape[2:])
    each = kernels.reshape(groups, -1, *kernels.shape[1:])
    rest = (None, stride, padding, dilation, False, output_padding, 1)
    scales: list = []

    def make():
        if not scales:  # the job has them at hand
            scales.extend(one.reshape(*one.shape, *(1,) * (x.dim() - 2)) for one in _scales(each))
        before, after = scales
        made = CONVOLUTION(samples * before, each[0], *rest) * after
        return made.reshape(1, -1, *made.shape[2:])

    return Other("modulated", make, [], (groups, *each.shape[1:]))


def _scales(each) -> tuple:
    """Of kernels by sample, what the first one's inputs and outputs would be multiplied by, read off the largest number
    of each pair of channels: (samples, inputs) and (samples, outputs)."""
    flat = each.flatten(3)
    largest = flat[:1].abs().argmax(3, keepdim=True)
    picked = flat.gather(3, largest.expand(flat.shape[0], -1, -1, -1)).squeeze(3)
    times = picked / picked[:1]
    return times[:, 0] / times[:, :1, 0], times[:, :, 0]
