"""Sums of products with a single number in each row: one number of each row is picked, by an operator that does it."""

import torch

from .followed import Link, Other

_aten = torch.ops.aten
ALL = _aten.sum.default
_SUMS = (ALL, _aten.sum.dim_IntList)
_CLASSES = (1, -1)
"""Along which a loss of all numbers has its classes."""
_FIRST_ROWS = 16
"""Looked at before all others."""


def one_number(func, args: tuple, result, known) -> "Other | None":
    """A sum, along one dimension or of all, of a product one of whose factors has one number in each row, and 0."""
    found = known(args[0]) if func in _SUMS else None
    if found is None or found.func is not _aten.mul.Tensor or not found.args or tuple(args[0].shape) != found.shape:
        return None
    dims = _CLASSES if func is ALL else args[1]
    if not dims or (func is not ALL and len(dims) > 1) or len(found.shape) < 2 or not result.is_floating_point():
        return None
    for one, mask in (found.args[:2], found.args[1::-1]):
        if not _are_alike(one, mask, found.shape) or mask.requires_grad:
            continue
        for dim in {number % len(found.shape) for number in dims}:
            index = _places(mask, dim)
            if index is not None:
                return _gathered(one, mask, index, dim, func is ALL, result, [found, *_making(mask, known, found)])
    return None


def _gathered(one, mask, index, dim: int, is_all: bool, result, links: "list[Link]") -> Other:
    weights = mask.gather(dim, index)
    plain = bool((weights == 1).all())

    def make():
        rows = one.gather(dim, index)
        rows = rows if plain else rows * weights
        return rows.sum() if is_all else rows.reshape(result.shape)

    def backward(gradient):
        rows = gradient.expand(index.shape) if is_all else gradient.reshape(index.shape)
        return torch.zeros_like(one).scatter_(dim, index, rows if plain else rows * weights)

    return Other("one-hot-sum", make, links, one.shape, backward)


def _are_alike(one, mask, shape: tuple) -> bool:
    return all(isinstance(each, torch.Tensor) and tuple(each.shape) == shape for each in (one, mask))


def _places(mask, dim: int):
    """Of the number in each row, as an index; None where a row has none or several."""
    rows = mask.movedim(dim, -1)
    if rows.shape[-1] < 2:
        return None
    first = rows
    while first.dim() > 2:
        first = first[0]
    if not bool((torch.count_nonzero(first[:_FIRST_ROWS], dim=-1) == 1).all()):
        return None
    if not bool((torch.count_nonzero(mask, dim=dim) == 1).all()):
        return None
    return (mask != 0).to(torch.uint8).argmax(dim, keepdim=True)


def _making(mask, known, product: Link) -> "list[Link]":
    """What has made the mask, the last first, if nobody else has read it."""
    way, link, reader = [], known(mask), product
    while link is not None and [*map(id, link.used_by)] == [id(reader.made)]:
        way.append(link)
        link, reader = link.source, link
    return way
