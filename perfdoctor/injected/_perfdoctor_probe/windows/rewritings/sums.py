"""Sums over products and over squared differences of all with all, as products of matrices; over sizes of differences,
by sorting."""

from math import prod

import torch

from .followed import Link, Other

_aten = torch.ops.aten
NORMS = (_aten.linalg_vector_norm.default, _aten.norm.ScalarOpt_dim)


def summed(func, args: tuple, result, known) -> "Other | None":
    """A sum over a product, or over a squared difference, of which each factor is repeated for the other."""
    found = known(args[0])
    if found is None or found.is_passing or tuple(args[0].shape) != found.shape or not args[1]:
        return None
    dims = {dim % len(found.shape) for dim in args[1]}
    count = prod(found.shape[dim] for dim in dims) if func is _aten.mean.dim else 1
    if found.func is _aten.mul.Tensor and found.source is None:
        one, other = found.args[:2]
        return Other(
            "product", lambda: _einsum(one, other, found.shape, dims, result) / count, _with_copies(found), found.shape
        )
    source = found.source
    if source is None or source.func is not _aten.sub.Tensor:
        return None
    if found.func is _aten.abs.default:
        return _pairs(found, dims, count, result)
    links = [found, *_with_copies(source)]
    return Other("distance", lambda: _distances(source, dims, result) / count, links, source.shape)


def _pairs(found: Link, dims: "set[int]", count: int, result) -> "Other | None":
    """|x - y| of all pairs of the same numbers, summed: sorted, each counts as often as there are more below it than
    above."""
    one, other = found.source.args[:2]
    size = len(found.shape)
    if dims != {size - 2, size - 1} or one.dim() != size or other.dim() != size:
        return None
    if one.shape[-1] == other.shape[-2] == 1:
        one, other = one.squeeze(-1), other.squeeze(-2)
    elif one.shape[-2] == other.shape[-1] == 1:
        one, other = one.squeeze(-2), other.squeeze(-1)
    else:
        return None
    same = one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
    if not same:
        return None

    def make():
        numbers = one.shape[-1]
        weights = torch.arange(1 - numbers, numbers, 2, dtype=one.dtype, device=one.device)
        return (one.sort(-1).values @ weights).mul_(2 / count).reshape(result.shape)

    return Other("pairs", make, [found, found.source], found.shape)


def distance_of_norm(args: tuple, result, known) -> "Other | None":
    """The length of a difference, or of one that something small was added to."""
    found = last = known(args[0])
    if found is not None and found.func is _aten.add.Scalar:
        found = found.source
    is_plain = len(args) >= 3 and args[1] == 2 and args[2]
    if found is None or found.func is not _aten.sub.Tensor or found.is_passing:
        return None
    if not is_plain or tuple(args[0].shape) != found.shape:
        return None
    dims = {dim % len(found.shape) for dim in args[2]}
    links = _with_copies(found) if last is found else [last, *_with_copies(found)]
    return Other("distance", lambda: _distances(found, dims, result).clamp_min(0).sqrt(), links, found.shape)


def _with_copies(found: Link) -> "list[Link]":
    return [found, *found.copies]


def _distances(found: Link, dims: "set[int]", result):
    """|x|^2 + |y|^2 - 2 x y of a difference."""
    one, other = found.args[:2]
    own = [_einsum(each, each, found.shape, dims, None) for each in (one, other)]
    return (own[0] + own[1]).sub_(_einsum(one, other, found.shape, dims, None), alpha=2).reshape(result.shape)


def _einsum(one, other, shape: tuple, dims: "set[int]", result):
    """Of two tensors that are repeated up to a shape, summed over some dimensions; those of size 1 stay where there is
    no `result` to say otherwise."""
    letters = [[], []]
    squeezed = []
    for which, tensor in enumerate((one, other)):
        ahead = len(shape) - tensor.dim()
        for dim in reversed(range(tensor.dim())):
            if shape[ahead + dim] > 1 and (tensor.shape[dim] == 1 or tensor.stride(dim) == 0):
                tensor = tensor.select(dim, 0)
            else:
                letters[which].insert(0, ahead + dim)
        squeezed.append(tensor)
    kept = [dim for dim in range(len(shape)) if dim not in dims and (dim in letters[0] or dim in letters[1])]
    made = torch.einsum(squeezed[0], letters[0], squeezed[1], letters[1], kept)
    if result is not None:
        return made.reshape(result.shape)
    return made.reshape([shape[dim] if dim in kept else 1 for dim in range(len(shape))])
