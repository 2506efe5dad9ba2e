"""What some operators could be in place of what they are: the same numbers by others, read off their arguments.

Each rule is given an operator that has just run and says what would have done as well, where the shapes promise that
less is to be computed. Whether it does, and is faster, is for the caller to try. Rules follow tensors back to what made
them by the memory that they share, through views and through products with a number.
"""

import torch

from . import (
    attended,
    by_hand,
    edges,
    integers,
    kinds,
    lookups,
    matrices,
    messages,
    modulated,
    penalties,
    picks,
    resizes,
    rows,
    shuffles,
    sorts,
    strides,
    sums,
    systems,
    transforms,
    unfolds,
    writes,
)
from .followed import (
    COMPLEX_TRANSFORM,
    CONVOLUTION,
    GATHERED,
    LAYERS,
    PRODUCTS,
    SHUFFLES,
    SORTS,
    Link,
    Other,
    factors,
    links,
)
from .matrices import by_content
from .writes import INTO_VIEWS, rebuilt

__all__ = [
    "INTO_VIEWS",
    "LINEAR",
    "SAME_MEMORY",
    "Link",
    "Other",
    "by_content",
    "by_shape",
    "factors",
    "links",
    "of_part",
    "rebuilt",
]

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.mean.dim)
_ENDS = (_aten.mul.Tensor, _aten.div.Tensor, _aten.log.default)
"""What a function that is made by hand ends with."""
SAME_MEMORY = (_aten._unsafe_view.default,)
"""Its result is a view of its argument, though its schema does not say so."""
LINEAR = _SUMS
"""They may read a product of matrices as well: what they make of it is as cheap to make of its factors."""


def by_shape(func, args: tuple, kwargs: dict, result, known) -> "Other | None":
    """What could be in the place of this operator and of those whose results it reads; `known` as for `links`."""
    if func in LAYERS and (other := edges.apart(func, args, known) or edges.spread(func, args, known)) is not None:
        return other
    if func in PRODUCTS:
        return (
            integers.in_floating_point(args)
            or matrices.in_another_order(func, args, known)
            or systems.solved_at_once(args, known)
            or kinds.by_kind(args, known)
            or unfolds.convolved(args, known)
        )
    if func in _SUMS:
        return sums.summed(func, args, result, known) or picks.one_number(func, args, result, known)
    if func is picks.ALL:
        return penalties.decayed(args, known) or picks.one_number(func, args, result, known)
    if func in sums.NORMS:
        return sums.distance_of_norm(args, result, known)
    if func in SORTS:
        return sorts.ranked(args, kwargs, result, known)
    if func is _aten.cat.default:
        return _grown(args, known)
    if func is _aten.nll_loss_forward.default:
        return matrices.counted(args, result, known)
    if func is _aten.linalg_cholesky_ex.default:
        return matrices.factored(args[0], result[0])
    if func in systems.OF_MATRICES:
        return systems.of_triangles(func, args, result)
    if func is _aten.linalg_solve_triangular.default:
        return matrices.solved(args, kwargs)
    if func in writes.WRITES:
        return writes.again(func, args)
    if func in lookups.LOOKUPS:
        return rows.picked(args, result, known) or lookups.by_entries(args) or lookups.by_select(args, result)
    if func in messages.ADDED:
        return messages.summed(args, result, known)
    if func is CONVOLUTION:
        return resizes.afterwards(args, known) or modulated.by_sample(args)
    if func is attended.ATTENTION:
        return attended.in_groups(args, kwargs, result)
    if func in transforms.TRANSFORMS:
        return transforms.shorter(func, args) or transforms.of_real(func, args, known)
    if func in _ENDS:
        return by_hand.instead(func, args, result, known)
    return sorts.searched(args, result, known) if func is _aten.eq.Tensor else None


def _grown(args: tuple, known) -> "Other | None":
    """What was joined before is copied to be joined with more: once for all of it would do."""
    found = next((one for one in map(known, args[0]) if one is not None and one.func is _aten.cat.default), None)
    if found is None or found.args[1:] != args[1:]:
        return None
    return Other("grown", _nothing, [found], found.shape, instead_of=False, replaces_last=False)


def _nothing() -> None:
    """What need not be done at all."""


def of_part(found: Link, tensor) -> "Other | None":
    """What could be in the place of an operator of whose result this part is read; None where no less would do."""
    if found.func in SORTS:
        return sorts.top(found, tensor)
    if found.func in SHUFFLES:
        return shuffles.drawn(found, tensor)
    if found.func in GATHERED:
        return lookups.fewer(found, tensor)
    if found.func is CONVOLUTION:
        return strides.afterwards(found, tensor)
    if found.func is COMPLEX_TRANSFORM:
        return transforms.real_part(found, tensor)
    diagonal = matrices.diagonal(found, tensor) if found.func in PRODUCTS else None
    return diagonal or rows.read(found, tensor)
