"""Products with patches that were copied side by side, as the convolutions that they are."""

import torch

from .followed import UNFOLD, Link, Other


def convolved(args: tuple, known) -> "Other | None":
    """`weight @ unfold(x)`, and `unfold(x).T @ weight.T`, in whatever order the patches were copied for it."""
    for side in (1, 0):
        patches = args[side]
        found = known(patches)
        source = found if found is None or found.func is UNFOLD else found.source
        if source is None or source.func is not UNFOLD:
            continue
        samples, inner, places = source.shape
        other = args[1 - side]
        if side == 0 and tuple(patches.shape) == (samples * places, inner):
            return _other(found, source, other.t(), lambda made: made.permute(0, 2, 3, 1).reshape(-1, made.shape[1]))
        if side == 1 and tuple(patches.shape) == (1, inner, samples * places):
            return _other(found, source, other[0], lambda made: made.transpose(0, 1).reshape(1, made.shape[1], -1))
        if side == 1 and found is source and tuple(patches.shape) == source.shape and not other.stride(0):
            return _other(found, source, other[0], lambda made: made.flatten(2))
    return None


def _other(found: Link, source: Link, weight, as_product) -> Other:
    """`weight`: a row for each channel that comes out; `as_product` gives the convolution the product's shape."""
    pictures, kernel, dilation, padding, stride = source.args

    def make():
        kernels = weight.reshape(weight.shape[0], pictures.shape[1], *kernel)
        return as_product(torch.conv2d(pictures, kernels, None, stride, padding, dilation))

    return Other("unfolded", make, [found] if found is source else [found, source], source.shape)
