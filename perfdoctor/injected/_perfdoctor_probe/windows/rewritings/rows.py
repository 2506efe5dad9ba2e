"""Products of matrices of which some rows are read: scores of all positions, where a loss takes a few."""

from math import prod

from .followed import Link, Other, part_of, score_factors

_UNREAD = 0.3
"""Of the rows, at least."""


def picked(args: tuple, result, known) -> "Other | None":
    """`(x w)[rows]` as `x[rows] w`, where rows are looked up."""
    scores, indices = args
    found = known(scores)
    both = None if found is None else _factors(found)
    if both is None or len(indices) >= scores.dim() or scores.storage_offset() or not scores.is_contiguous():
        return None
    left, right, bias = both
    if scores.shape[-1] != right.shape[-1] or scores.numel() != prod(found.shape) or not _are_few(result, both):
        return None
    shape = *scores.shape[:-1], left.shape[-1]
    places = tuple(slice(None) if one is None else one for one in indices)
    return Other("picked", lambda: _product(left.reshape(shape)[places], right, bias), _way(found), found.shape)


def read(found: Link, tensor) -> "Other | None":
    """The same of a part that is a view: `(x w)[:, -1]`."""
    both = _factors(found)
    if both is None or tensor.numel() >= prod(found.shape) or not _are_few(tensor, both):
        return None
    left, right, bias = both
    width, inner = right.shape[-1], left.shape[-1]
    steps = (tensor.storage_offset(), *tensor.stride()[:-1])
    if tensor.dim() < 2 or (tensor.shape[-1], tensor.stride(-1)) != (width, 1) or any(one % width for one in steps):
        return None
    offset, *strides = (one // width * inner for one in steps)
    place = (*tensor.shape[:-1], inner), (*strides, 1), offset
    return Other(
        "picked",
        lambda: _product(left.contiguous().as_strided(*place), right, bias),
        _way(found),
        found.shape,
        instead_of=tensor,
        replaces_last=False,
        part=part_of(tensor),
    )


def _factors(found: Link) -> "tuple | None":
    """Of a product that still lies as it was made."""
    both = score_factors(found)
    in_order = tuple(prod(found.shape[at + 1 :]) for at in range(len(found.shape)))
    return both if both is not None and found.strides == in_order else None


def _are_few(rows, both: tuple) -> bool:
    left, right, _ = both
    return 0 < rows.numel() <= (1 - _UNREAD) * left.shape[0] * right.shape[-1]


def _way(found: Link) -> "list[Link]":
    return [found] if found.source is None else [found, found.source]


def _product(rows, right, bias):
    made = rows @ right
    return made if bias is None else made + bias
