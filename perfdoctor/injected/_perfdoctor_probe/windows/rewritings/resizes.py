"""Layers that work on pictures after these are made larger, and could before."""

from math import prod

from .followed import CONVOLUTION, RESIZES, Other


def afterwards(args: tuple, known) -> "Other | None":
    """A convolution of single pixels, which mixes channels only, before the picture is made larger: both are linear,
    and what is made larger are weights that add up to 1."""
    image, weight, _, stride, padding, _, transposed, _, groups = args
    if transposed or groups != 1 or prod(weight.shape[2:]) != 1 or set(stride) != {1} or set(padding) != {0}:
        return None
    found = known(image)
    if found is None or found.func.overloadpacket not in RESIZES or tuple(image.shape) != found.shape:
        return None
    small = found.args[0]
    if small.numel() >= image.numel():
        return None
    enlarge, sizes = found.func, found.args[1:]
    return Other("enlarged", lambda: enlarge(CONVOLUTION(small, *args[1:]), *sizes), [found], found.shape)
