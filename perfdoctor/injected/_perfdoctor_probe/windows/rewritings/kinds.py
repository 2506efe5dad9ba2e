"""Weights that are copied for each row, one of a few kinds, to be multiplied with that row."""

from math import prod

import torch

from .followed import GATHERED, Other, gathered

_TIMES = 4
"""Rows for each kind on average, at least."""
_TOGETHER = 8
"""Kinds up to which each row is multiplied with all of them, and its own is picked; more are taken one by one."""
_MOST = 256
"""Kinds."""


def by_kind(args: tuple, known) -> "Other | None":
    """`bmm(x, weight[kind])` as products with the matrices of all kinds, of which each row picks its own."""
    for side in (1, 0):
        found = known(args[side])
        weight, kind = gathered(found) if found is not None and found.func in GATHERED else (None, None)
        if weight is None or args[side].numel() != prod(found.shape) or args[side].storage_offset():
            continue
        rows = kind.numel()
        if rows != args[side].shape[0] or not _TIMES * weight.shape[0] <= rows or weight.shape[0] > _MOST:
            continue
        table = _table(weight, args[side])
        if table is None:
            continue
        other = args[1 - side]
        x, table = (other, table) if side else (other.transpose(1, 2), table.transpose(1, 2))
        return Other("by-kind", _product(x, table, kind.reshape(-1), turned=not side), [found], found.shape)
    return None


def _table(weight, matrices) -> "torch.Tensor | None":
    """The weights of all kinds as matrices like those of the rows."""
    rows, columns = matrices.shape[-2:]
    if matrices.is_contiguous():
        return weight.reshape(-1, rows, columns)
    if matrices.transpose(-1, -2).is_contiguous():
        return weight.reshape(-1, columns, rows).transpose(-1, -2)
    return None


def _product(x, table, kind, turned: bool):
    rows, many, inner = x.shape
    kinds, _, width = table.shape

    def together():
        each = x.reshape(-1, inner) @ table.transpose(0, 1).reshape(inner, -1)
        places = torch.arange(rows, device=kind.device)
        return each.view(rows, many, kinds, width)[places, :, kind]

    def one_by_one():
        made = x.new_empty(rows, many, width)
        for number, matrix in enumerate(table):
            own = (kind == number).nonzero().squeeze(1)
            made.index_copy_(0, own, x.index_select(0, own) @ matrix)
        return made

    make = together if kinds <= _TOGETHER else one_by_one
    return (lambda: make().transpose(1, 2)) if turned else make
