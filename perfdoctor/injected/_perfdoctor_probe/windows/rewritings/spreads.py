"""Numbers that were written out several times over, for an operator that would have repeated them by itself."""

from math import prod

import torch

_aten = torch.ops.aten
WIDER = 4
"""Times as many numbers as the larger argument has: from where on what lies in between is worth replacing by a product
of matrices."""


def spread(func, args: tuple, result):
    """A view of the few numbers that a result repeats; None where it repeats none. Of a quotient it is what its first
    row would be if all were: whoever replaces it compares the numbers."""
    one = args[0] if args else None
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return None
    if func is _aten.repeat.default:
        times = args[1][len(args[1]) - one.dim() :]
        return one.expand(result.shape) if all(n == 1 or size == 1 for n, size in zip(times, one.shape)) else None
    repeated = [dim for dim in range(one.dim()) if one.shape[dim] > 1 and not one.stride(dim)]
    if not repeated or one.shape != result.shape:
        return None
    if func is _aten.clone.default:
        return one
    if func is not _aten.div.Tensor or not isinstance(args[1], torch.Tensor) or args[1].dim() != one.dim():
        return None
    other = args[1]
    for dim in repeated:
        one, other = one.narrow(dim, 0, 1), other.narrow(dim, 0, 1)
    return torch.div(one, other).expand(result.shape)


def is_wide(args, result) -> bool:
    """Whether each argument is repeated along dimensions of the other."""
    both = [one for one in args if isinstance(one, torch.Tensor) and one.dim() and one.is_floating_point()]
    return len(both) == 2 and result.numel() >= WIDER * max(numbers(one) for one in both)


def numbers(tensor) -> int:
    """Those in memory: what is expanded has less than elements."""
    return prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride)
