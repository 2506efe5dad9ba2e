"""Rows that are picked and added up at other places, as the products with a sparse matrix that they are: what the nodes
of a graph send to their neighbours."""

import functools
import warnings

import torch

from .followed import GATHERED, Other, gathered

_aten = torch.ops.aten
ADDED = (
    _aten.index_add.default,
    _aten.index_add_.default,
    _aten.scatter_add.default,
    _aten.scatter_add_.default,
)


def summed(args: tuple, result, known) -> "Other | None":
    """`zeros.index_add_(0, to, x[from])` as `adjacency @ x`, also with a weight for each message; for edges that are
    the same in each step, since the matrix is made once."""
    target, dim, places, messages = args[:4]
    found = known(messages)
    if found is None or target.dim() != 2 or dim % 2 or tuple(messages.shape) != found.shape:
        return None
    source, weights = found, None
    if found.func is _aten.mul.Tensor and found.source is not None:
        source, weights = found.source, next(one for one in found.args[:2] if one.shape[-1] == 1)
    rows, origins = gathered(source) if source.func in GATHERED else (None, None)
    if rows is None or origins.dim() != 1:
        return None
    if places.dim() == 2:
        if places.stride(1):  # another place for each number of a row
            return None
        places = places[:, 0]
    if rows.dim() != 2 or len(origins) != len(places):
        return None

    @functools.cache
    def edges() -> tuple:
        there, back = (len(target), len(rows)), (len(rows), len(target))
        return _sparse((places, origins), there, weights, rows), _sparse((origins, places), back, weights, rows)

    return Other(
        "messages",
        lambda: edges()[0] @ rows.detach(),
        [found] if found is source else [found, source],
        found.shape,
        backward=lambda made: edges()[1] @ made,
        constant=(places, origins),
    )


def _sparse(places: tuple, shape: tuple, weights, like):
    numbers = torch.ones(len(places[0]), dtype=like.dtype) if weights is None else weights.detach().reshape(-1)
    with warnings.catch_warnings():  # torch calls its sparse rows a prototype
        warnings.simplefilter("ignore")
        return torch.sparse_coo_tensor(torch.stack(places), numbers, shape).coalesce().to_sparse_csr()
