"""Products of matrices in another order, or with hardly any number in them; and what is computed of diagonal ones."""

import warnings
from math import prod

import torch

from . import blocks
from .followed import Link, Other, behind, score_factors

_aten = torch.ops.aten
_FEWER = 0.6
"""Of the multiplications, at most, in the other order."""
_EMPTY = 0.02
"""Of a matrix, the numbers that are not 0, at most: sparse products are slower than dense ones above a few per cent."""
_IN_BLOCKS = 0.5
"""The same of one whose numbers may lie in blocks along its diagonal: half of it, for two."""
_LISTED = 1 << 22
"""And so many at most: their places take 64 MiB."""
_LEAST_SIDE = 32
"""Rows and columns of a matrix whose numbers are looked at."""
_LEAST_FACTORED = 2
"""The same of one that is factored: covariances are small, and many."""
_IGNORED = 0.3
"""Of the rows of a loss, those that do not count, at least."""


def in_another_order(func, args: tuple, known) -> "Other | None":
    """`(a b) c` as `a (b c)`, and `c (a b)` as `(c a) b`."""
    for side in (0, 1):
        found = known(args[side])
        if found is None:
            continue
        product, factor, way = behind(found)
        if product.func is not func:
            continue
        turned = _is_turned(args[side], found.order)
        if turned is None:
            continue
        a, b = product.args[:2]
        if turned:
            a, b = b.transpose(-1, -2), a.transpose(-1, -2)
        c = args[1 - side]
        rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        more = c.shape[-1] if side == 0 else c.shape[-2]
        now = rows * columns * (inner + more)
        other = inner * more * (rows + columns)
        if other <= _FEWER * now:
            return Other("order", _in_order(a, b, c, side, factor), way, product.shape)
    return None


def _in_order(a, b, c, side: int, factor: float):
    def make():
        made = torch.matmul(a, torch.matmul(b, c)) if side == 0 else torch.matmul(torch.matmul(c, a), b)
        return made if factor == 1.0 else made * factor

    return make


def _is_turned(tensor, order: tuple) -> "bool | None":
    """Whether these rows and columns are its columns and rows; None where it is neither."""
    rows, columns = order
    if tensor.storage_offset():
        return None
    if tensor.dim() == 3 and tensor.shape[0] > 1 and tensor.stride(0) != rows * columns:
        return None
    shape, strides = tuple(tensor.shape[-2:]), tensor.stride()[-2:]
    if shape == (rows, columns) and strides == (columns, 1):
        return False
    return True if shape == (columns, rows) and strides == (1, columns) else None


def diagonal(found: Link, tensor) -> "Other | None":
    """Of a product of matrices its diagonal: each row with its own column."""
    rows, columns = found.shape[-2:]
    if rows != columns or tensor.storage_offset() or tensor.numel() * columns != prod(found.shape):
        return None
    if not tensor.dim() or (tensor.shape[-1], tensor.stride(-1)) != (rows, columns + 1):
        return None
    a, b = found.args[:2]
    return Other(
        "trace",
        lambda: (a * b.transpose(-1, -2)).sum(-1).reshape(tensor.shape),
        [found],
        found.shape,
        instead_of=tensor,
        replaces_last=False,
    )


def by_content(left, right, bias, is_constant: bool) -> "Other | None":
    """What could be in the place of a product with a matrix that holds hardly any number but 0, or only in blocks.
    `is_constant`: it held the same in the step before, so that it could be kept as a sparse one."""
    if left.layout is torch.sparse_coo:
        plain = not left.requires_grad and left.dim() == 2 and not left.dense_dim() and right.layout is torch.strided
        return _by_rows("by-rows", left, right, bias) if is_constant and plain else None
    if left.layout is not torch.strided:
        return None
    if left.dim() != 2 or left.requires_grad or min(left.shape) < _LEAST_SIDE or not left.is_floating_point():
        return None
    rows, columns = left.shape
    count = int(torch.count_nonzero(left))
    if not 0 < count <= max(rows, _EMPTY * left.numel()):
        is_worth_it = 0 < count <= min(_IN_BLOCKS * left.numel(), _LISTED)
        return blocks.one_by_one(left, right, bias) if is_worth_it else None

    def finished(made):
        return made if bias is None else made + bias

    if count <= rows and int(torch.count_nonzero(left, dim=1).max()) == 1:
        places = left.abs().argmax(1)
        is_there = left.any(1)
        if rows == columns and torch.equal(places[is_there], torch.arange(rows, device=left.device)[is_there]):
            weights = left.diagonal().unsqueeze(1)
            return Other("diagonal", lambda: finished(weights * right), [], left.shape)
        if bool((left.gather(1, places.unsqueeze(1)) == 1).all()):
            return Other(
                "one-hot",
                lambda: finished(right.index_select(0, places)),
                [],
                left.shape,
                backward=lambda gradient: torch.zeros_like(right).index_add_(0, places, gradient),
            )
    return _by_rows("sparse", left, right, bias) if is_constant else blocks.one_by_one(left, right, bias)


def _by_rows(kind: str, left, right, bias) -> Other:
    """A matrix as a sparse one whose numbers lie row by row: products go through several rows at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this layout is a beta
        rows = left.to_sparse_csr()

    def make():
        return rows @ right if bias is None else rows @ right + bias

    return Other(kind, make, [], left.shape, backward=lambda made: rows.t() @ made)


def factored(matrices, factors) -> "Other | None":
    """Of matrices that are diagonal the factor is so too: it holds the roots."""
    if not _are_diagonal(matrices):
        return None
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    return Other(
        "diagonal-factor",
        lambda: diagonal.sqrt().diag_embed(),
        [],
        matrices.shape,
        instead_of=factors,
        backward=_scaled,
    )


def solved(args: tuple, kwargs: dict) -> "Other | None":
    """To solve with matrices that are diagonal is to divide by what is on it."""
    matrices, right = args[:2]
    if kwargs.get("left") is False or kwargs.get("unitriangular") or not _are_diagonal(matrices):
        return None
    diagonal = matrices.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    return Other("diagonal-solve", lambda: right / diagonal, [], matrices.shape, backward=_scaled)


def _scaled(gradient):
    """What the backward pass of either would take, about: as many numbers multiplied once."""
    return gradient * 0.5


def _are_diagonal(matrices) -> bool:
    """Whether all numbers beside the diagonals are 0, and none on them is."""
    if matrices.dim() < 2 or matrices.shape[-1] < _LEAST_FACTORED or matrices.shape[-2] != matrices.shape[-1]:
        return False
    count = int(torch.count_nonzero(matrices))
    return count * matrices.shape[-1] == matrices.numel() and bool(matrices.diagonal(dim1=-2, dim2=-1).all())


def counted(args: tuple, result, known) -> "Other | None":
    """A loss of scores most of which it ignores, by those that count."""
    found = known(args[0])
    target, weights, reduction, ignored = args[1:5]
    if found is None or found.func is not _aten._log_softmax.default or weights is not None or not reduction:
        return None
    if tuple(args[0].shape) != found.shape:
        return None
    kept = (target != ignored).nonzero().squeeze(1)
    if not 0 < kept.numel() <= (1 - _IGNORED) * target.numel():
        return None
    left, right, bias = score_factors(found.source)
    if left.shape[0] != target.numel():
        return None
    way = [found, found.source, *([found.source.source] if found.source.source is not None else [])]
    how = "mean" if reduction == 1 else "sum"

    def make():
        scores = left.index_select(0, kept) @ right
        scores = scores if bias is None else scores + bias
        return torch.nn.functional.cross_entropy(scores, target[kept], reduction=how)

    return Other("ignored", make, way, found.shape, instead_of=result[0])
