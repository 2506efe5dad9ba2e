"""Tables of which columns are looked up: each number comes from a line of memory of its own. And rows that are picked
by an index, whose gradients are added up in a slow way."""

import torch

from .followed import Link, Other, gathered

LOOKUPS = (torch.ops.aten.index.Tensor,)
_LEAST_WIDTH = 8
"""Numbers of an entry: fewer share a line of memory anyhow."""
_LEAST_NUMBERS = 1 << 14
"""Looked up at once: fewer take less than trying is worth."""
_FEW = 0.5
"""Of the rows that are picked, at most, that are read then."""
_LARGEST = 1 << 24
"""Numbers of a table that is turned round; of a larger one as many entries stand for all."""


def by_entries(args: tuple) -> "Other | None":
    """`table[:, row, column]` as `table[row, column]` of a table that is kept the other way round."""
    table, indices = args
    width = next((at for at, one in enumerate(indices) if one is not None), 0)
    places = indices[width:]
    if not width or width + len(places) != table.dim() or any(one is None or one.dtype is torch.bool for one in places):
        return None
    # What each step computes would have to be turned round in each.
    if table.grad_fn is not None or not table.is_contiguous():
        return None
    wide = table.shape[:width].numel()
    if wide < _LEAST_WIDTH or wide * places[0].numel() < _LEAST_NUMBERS:
        return None
    whole = table
    if table.numel() > _LARGEST:
        most = _LARGEST // wide
        if len(places) > 1 or most < places[0].numel():
            return None
        table, places = table[..., :most], [places[0] % most]
    kept: list = []

    def entries():
        if not kept:
            kept.append(table.movedim(tuple(range(width)), tuple(range(-width, 0))).contiguous())
        return kept[0]

    def make():
        return entries()[tuple(places)].movedim(tuple(range(-width, 0)), tuple(range(width)))

    def backward(made):
        gradient = made.movedim(tuple(range(width)), tuple(range(-width, 0)))
        return torch.zeros_like(entries()).index_put_(tuple(places), gradient, accumulate=True)

    return Other("columns", make, [], whole.shape, backward, instead_of=None if table is whole else False)


def by_select(args: tuple, result) -> "Other | None":
    """`x[index]` as `x.index_select(0, index)`: its gradients are added up row by row, and not number by number."""
    table, indices = args
    places = indices[0]
    if len(indices) > 1 or places is None or places.dtype not in (torch.int64, torch.int32) or not places.dim():
        return None
    if not table.requires_grad or not result.is_floating_point() or result.numel() < _LEAST_NUMBERS:
        return None
    flat = places.reshape(-1)

    def make():
        return table.index_select(0, flat).view(result.shape)

    def backward(gradient):
        return torch.zeros_like(table).index_add_(0, flat, gradient.reshape(-1, *table.shape[1:]))

    return Other("indexed", make, [], result.shape, backward, is_for_gradient=True)


def fewer(found: Link, tensor) -> "Other | None":
    """`x[order][:n]` as `x[order[:n]]`."""
    table, places = gathered(found)
    if table is None or places.dim() != 1 or tensor.stride() != found.strides or tensor.shape[1:] != found.shape[1:]:
        return None
    first, rest = divmod(tensor.storage_offset(), found.strides[0])
    count = len(tensor)
    if rest or count > _FEW * len(places):
        return None
    return Other(
        "cut",
        lambda: table.index_select(0, places[first : first + count]),
        [found],
        found.shape,
        instead_of=tensor,
        replaces_last=False,
        part=(first, count),
        in_each_step=True,
    )
