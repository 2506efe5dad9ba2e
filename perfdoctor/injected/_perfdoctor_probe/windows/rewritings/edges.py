"""Layers of rows that were picked or repeated, and joined: what a network computes of both ends of each edge of a
graph, or of each pair."""

import math

import torch

from .followed import GATHERED, Other, factors, gathered

_TIMES = 2
"""Rows that are picked, for each there is."""


def apart(func, args: tuple, known) -> "Other | None":
    """`cat([x[a], x[b]], 1) @ w` as `(x @ w_a)[a] + (x @ w_b)[b]`, with a part of the weights for each."""
    left, right, bias = factors(func, args, {})
    found = known(left)
    if found is None or found.func is not torch.ops.aten.cat.default or tuple(left.shape) != found.shape:
        return None
    parts = found.args[0]
    if left.dim() != 2 or found.args[1:] not in ((1,), (-1,)) or any(one.dim() != 2 for one in parts):
        return None
    picked = [_picked(one, known) for one in parts]
    if not any(picked):
        return None
    weights = right.split([one.shape[1] for one in parts])
    each = list(zip(parts, picked, weights))

    def make():
        made = sum(one @ w if rows is None else (rows[0] @ w).index_select(0, rows[1]) for one, rows, w in each)
        return made if bias is None else made + bias

    def backward(gradient):
        """What comes before and the weights get."""
        for one, rows, w in each:
            table, own = one, gradient
            if rows is not None:
                table = rows[0]
                own = torch.zeros(len(table), gradient.shape[1], dtype=gradient.dtype).index_add_(0, rows[1], gradient)
            own @ w.t()
            table.t() @ own

    return Other("edges", make, [found], found.shape, backward, as_it_is=_joined(parts, 1, left, right, bias))


def spread(func, args: tuple, known) -> "Other | None":
    """Of all pairs `cat([x[:, :, None].expand(...), x[:, None].expand(...)], -1) @ w` as `(x @ w_a)[:, :, None] + (x
    @ w_b)[:, None]`."""
    left, right, bias = factors(func, args, {})
    found = known(left)
    if found is None or found.func is not torch.ops.aten.cat.default or left.dim() != 2:
        return None
    parts, shape = found.args[0], tuple(found.shape)
    if len(shape) < 3 or found.args[1:] not in ((-1,), (len(shape) - 1,)) or left.numel() != math.prod(shape):
        return None
    once = [_once(one) for one in parts]
    if not any(one.numel() * _TIMES <= part.numel() for one, part in zip(once, parts)):
        return None
    weights = right.split([one.shape[-1] for one in parts])
    each = list(zip(once, weights))

    def make():
        made = sum((one.reshape(-1, len(w)) @ w).view(*one.shape[:-1], -1) for one, w in each)
        return (made if bias is None else made + bias).reshape(-1, right.shape[1])

    def backward(gradient):
        """What comes before and the weights get."""
        whole = gradient.view(*shape[:-1], -1)
        for one, w in each:
            repeated = [at for at in range(len(shape) - 1) if one.shape[at] != shape[at]]
            own = (whole.sum(repeated, keepdim=True) if repeated else whole).reshape(-1, right.shape[1])
            own @ w.t()
            one.reshape(-1, len(w)).t() @ own

    return Other("edges", make, [found], found.shape, backward, as_it_is=_joined(parts, -1, left, right, bias))


def _joined(parts, dim: int, left, right, bias):
    """What the job computes: one product with all rows, joined."""

    def make():
        rows = torch.cat(parts, dim).view(left.shape)
        return rows @ right if bias is None else torch.addmm(bias, rows, right)

    return make


def _once(part):
    """Without what is repeated in it."""
    repeats = [step == 0 and size > 1 for size, step in zip(part.shape[:-1], part.stride())]
    return part[tuple(slice(0, 1) if one else slice(None) for one in repeats)]


def _picked(part, known) -> "tuple | None":
    """What its rows are of, and which; None where there are as many, or where it is not known."""
    found = known(part)
    if found is None or found.func not in GATHERED or tuple(part.shape) != found.shape:
        return None
    table, places = gathered(found)
    if table is None or table.dim() != 2 or places.dim() != 1 or len(places) < _TIMES * len(table):
        return None
    return table, places
