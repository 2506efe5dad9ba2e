"""What some operators could be in place of what they are: the same numbers by others, read off their arguments.

Each rule is given an operator that has just run and says what would have done as well, where the shapes promise that
less is to be computed. Whether it does, and is faster, is for the caller to try. Rules follow tensors back to what made
them by the memory that they share, through views and through products with a number.
"""

from math import prod

import torch

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.bmm.default)
_SCALINGS = (_aten.mul.Tensor, _aten.div.Tensor)
_SUMS = (_aten.sum.dim_IntList, _aten.mean.dim)
_SORTS = (_aten.sort.default, _aten.sort.stable)
_SCORES = (_aten.mm.default, _aten.addmm.default)
_ADDITIONS = (_aten.add.Tensor, _aten.add_.Tensor)
SAME_MEMORY = (_aten._unsafe_view.default,)
"""Its result is a view of its argument, though its schema does not say so."""
LINEAR = _SUMS
"""They may read a product of matrices as well: what they make of it is as cheap to make of its factors."""
_WIDER = 4
"""Times as many numbers as the larger argument has: from where on a product in between is worth replacing by one of
matrices."""
_FEWER = 0.6
"""Of the multiplications, at most, in the other order."""
_EMPTY = 0.02
"""Of a matrix, the numbers that are not 0, at most: sparse products are slower than dense ones above a few per cent."""
_LEAST_SIDE = 32
"""Rows and columns of a matrix whose numbers are looked at."""
_LEAST_FACTORED = 2
"""The same of one that is factored: covariances are small, and many."""
_IGNORED = 0.3
"""Of the rows of a loss, those that do not count, at least."""
_TOP = 0.25
"""Of what is sorted, the part that is read, at most."""


class Link:
    """What an operator has made, as far as what is made of it could be made otherwise. It keeps that operator's
    arguments, which are smaller, until the step is over."""

    __slots__ = ("args", "func", "kwargs", "made", "order", "shape", "source", "strides", "used_by", "which")

    def __init__(self, func, args: tuple, made, result, source: "Link | None" = None) -> None:
        self.func = func
        self.args = args
        self.kwargs: dict = {}
        self.made = made
        self.shape = tuple(result.shape)
        self.strides = result.stride()
        self.source = source
        """What it was made of, if that is one."""
        self.which = 0
        """Of the results of the operator."""
        self.order = source.order if source is not None else self.shape[-2:]
        """Rows and columns of a matrix as they lie in memory: operators by number keep that."""
        self.used_by: list = []
        """Operators that have read it."""


class Other:
    """A way to make what an operator has made."""

    __slots__ = ("backward", "instead_of", "kind", "links", "make", "replaces_last", "shape")

    def __init__(
        self, kind: str, make, links: "list[Link]", shape, backward=None, instead_of=None, replaces_last: bool = True
    ) -> None:
        self.kind = kind
        self.make = make
        """Makes it; called once or twice, at once."""
        self.links = links
        """What need not be made then, if nobody else reads it."""
        self.shape = tuple(shape)
        """Of the largest thing that need not be made, or of what is nearly empty."""
        self.backward = backward
        """Does what the backward pass would have to, given the gradient; None: twice as much as forwards."""
        self.instead_of = instead_of
        """What it makes, where that is not the result itself; False where what it makes is the same by definition."""
        self.replaces_last = replaces_last
        """Whether the operator that reads the last link need not be called either."""


# ---------------------------------------------------------------------------------------------------------
# What is kept of an operator


def links(func, args: tuple, kwargs: dict, result, made, known) -> "list[tuple]":
    """What it has made that is worth following, as tensors and links. `known`: the link of a tensor, or None."""
    if func in _PRODUCTS or func in _SCORES:
        if result.numel() >= max(args[-2].numel(), args[-1].numel()) and not kwargs:
            return [(result, Link(func, args, made, result))]
    elif func is _aten._log_softmax.default:
        source = known(args[0])
        if source is not None and _scores(source) is not None and args[0].dim() == 2 and args[1] in (1, -1):
            return [(result, Link(func, args, made, result, source))]
    elif func in _ADDITIONS and isinstance(args[1], torch.Tensor) and args[1].dim() == 1:
        source = known(args[0])
        if source is not None and source.func in _SCORES and not kwargs:
            return [(result, Link(func, args, made, result, source))]
    elif func is _aten.cat.default:
        return [(result, Link(func, args, made, result))]
    elif func in _SORTS:
        return _sorted_links(func, args, kwargs, result, made)
    elif func in _SCALINGS and _is_number(args[1]):
        source = known(args[0])
        if source is not None and _is_matrix(source):
            return [(result, Link(func, args, made, result, source))]
    elif _is_square(func, args):
        source = known(args[0])
        if source is not None and source.func is _aten.sub.Tensor and tuple(args[0].shape) == source.shape:
            return [(result, Link(func, args, made, result, source))]
    elif func in (_aten.mul.Tensor, _aten.sub.Tensor) and _is_wide(args, result):
        return [(result, Link(func, args, made, result))]
    return []


def _sorted_links(func, args: tuple, kwargs: dict, result, made) -> "list[tuple]":
    """Numbers and their places: who reads either reads what was sorted."""
    numbers, places = (Link(func, args, made, one) for one in result)
    numbers.kwargs = places.kwargs = kwargs
    places.which, places.used_by = 1, numbers.used_by
    return [(result[0], numbers), (result[1], places)]


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.dim() == 0)


def _is_matrix(found: Link) -> bool:
    return _product(found)[0].func in _PRODUCTS


def _is_square(func, args: tuple) -> bool:
    if func is _aten.pow.Tensor_Scalar:
        return args[1] == 2
    return func is _aten.mul.Tensor and args[0] is args[1]


def _is_wide(args: tuple, result) -> bool:
    """Whether each argument is repeated along dimensions of the other."""
    both = [one for one in args[:2] if isinstance(one, torch.Tensor) and one.dim() and one.is_floating_point()]
    return len(both) == 2 and result.numel() >= _WIDER * max(_numbers(one) for one in both)


def _numbers(tensor) -> int:
    """Those in memory: what is expanded has less than elements."""
    return prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride)


# ---------------------------------------------------------------------------------------------------------
# The rules


def by_shape(func, args: tuple, kwargs: dict, result, known) -> "Other | None":
    """What could be in the place of this operator and of those whose results it reads; `known` as above."""
    if func in _PRODUCTS:
        return _in_another_order(func, args, known)
    if func in _SUMS:
        return _summed(func, args, result, known)
    if func is _aten.linalg_vector_norm.default:
        return _distance_of_norm(args, result, known)
    if func in _SORTS:
        return _ranked(args, kwargs, result, known)
    if func is _aten.cat.default:
        return _grown(args, known)
    if func is _aten.nll_loss_forward.default:
        return _counted(args, result, known)
    if func is _aten.linalg_cholesky_ex.default:
        return _factored(args[0], result[0])
    if func is _aten.linalg_solve_triangular.default:
        return _solved(args, kwargs)
    return _searched(args, result, known) if func is _aten.eq.Tensor else None


def _factored(matrices, factors) -> "Other | None":
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


def _solved(args: tuple, kwargs: dict) -> "Other | None":
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


def factors(func, args: tuple, kwargs: dict) -> "tuple | None":
    """Both matrices of a product and what is added to it; None for any other operator."""
    if func is _aten.mm.default:
        return args[0], args[1], None
    return (args[1], args[2], args[0]) if func is _aten.addmm.default and not kwargs else None


def by_content(left, right, bias, is_constant: bool) -> "Other | None":
    """What could be in the place of a product with a matrix that holds hardly any number but 0. `is_constant`: it
    held the same in the step before, so that it could be kept as a sparse one."""
    if left.dim() != 2 or left.requires_grad or min(left.shape) < _LEAST_SIDE or not left.is_floating_point():
        return None
    rows, columns = left.shape
    count = int(torch.count_nonzero(left))
    if not 0 < count <= max(rows, _EMPTY * left.numel()):
        return None

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
    if not is_constant:
        return None
    sparse = left.to_sparse()
    return Other("sparse", lambda: finished(sparse @ right), [], left.shape)


def _product(found: Link) -> "tuple[Link, float, list[Link]]":
    """The link that numbers were multiplied to, their product, and all links on the way."""
    factor, way = 1.0, [found]
    while found.func in _SCALINGS and found.source is not None:
        number = float(found.args[1])
        factor = factor * number if found.func is _aten.mul.Tensor else factor / number
        found = found.source
        way.append(found)
    return found, factor, way


def _in_another_order(func, args: tuple, known) -> "Other | None":
    """`(a b) c` as `a (b c)`, and `c (a b)` as `(c a) b`."""
    for side in (0, 1):
        found = known(args[side])
        if found is None:
            continue
        product, factor, way = _product(found)
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


def _summed(func, args: tuple, result, known) -> "Other | None":
    """A sum over a product, or over a squared difference, of which each factor is repeated for the other."""
    found = known(args[0])
    if found is None or tuple(args[0].shape) != found.shape or not args[1]:
        return None
    dims = {dim % len(found.shape) for dim in args[1]}
    count = prod(found.shape[dim] for dim in dims) if func is _aten.mean.dim else 1
    if found.func is _aten.mul.Tensor and found.source is None:
        one, other = found.args[:2]
        return Other("product", lambda: _einsum(one, other, found.shape, dims, result) / count, [found], found.shape)
    source = found.source
    if source is None or source.func is not _aten.sub.Tensor:
        return None
    return Other("distance", lambda: _distances(source, dims, result) / count, [found, source], source.shape)


def _distance_of_norm(args: tuple, result, known) -> "Other | None":
    found = known(args[0])
    is_plain = len(args) >= 3 and args[1] == 2 and args[2]
    if found is None or found.func is not _aten.sub.Tensor or not is_plain or tuple(args[0].shape) != found.shape:
        return None
    dims = {dim % len(found.shape) for dim in args[2]}
    return Other("distance", lambda: _distances(found, dims, result).clamp_min(0).sqrt(), [found], found.shape)


def _grown(args: tuple, known) -> "Other | None":
    """What was joined before is copied to be joined with more: once for all of it would do."""
    found = next((one for one in map(known, args[0]) if one is not None and one.func is _aten.cat.default), None)
    if found is None or found.args[1:] != args[1:]:
        return None
    return Other("grown", _nothing, [found], found.shape, instead_of=False, replaces_last=False)


def _nothing() -> None:
    """What need not be done at all."""


def _counted(args: tuple, result, known) -> "Other | None":
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
    left, right, bias = _scores(found.source)
    if left.shape[0] != target.numel():
        return None
    way = [found, found.source, *([found.source.source] if found.source.source is not None else [])]
    how = "mean" if reduction == 1 else "sum"

    def make():
        scores = left.index_select(0, kept) @ right
        scores = scores if bias is None else scores + bias
        return torch.nn.functional.cross_entropy(scores, target[kept], reduction=how)

    return Other("ignored", make, way, found.shape, instead_of=result[0])


def _scores(found: Link) -> "tuple | None":
    """The matrices of a product and what was added to it, by the same operator or the next one."""
    if found.func in _SCORES:
        return factors(found.func, found.args, {})
    if found.func in _ADDITIONS and found.source is not None:
        return *factors(found.source.func, found.source.args, {})[:2], found.args[1]
    return None


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


def _sorting(found: Link) -> "tuple[int, bool]":
    """The dimension that was sorted, and whether downwards."""
    given = dict(zip(("dim", "descending"), found.args[1:]), **found.kwargs)
    return given.get("dim", -1) % len(found.shape), bool(given.get("descending"))


def _ranked(args: tuple, kwargs: dict, result, known) -> "Other | None":
    """A second sort, of the places that the first one gave, says where each number went."""
    found = known(args[0])
    downwards = dict(zip(("dim", "descending"), args[1:]), **kwargs).get("descending")
    if downwards or not _are_places(found) or tuple(args[0].shape) != found.shape:
        return None
    places = args[0]
    dim, _ = _sorting(found)
    shape = [places.shape[dim] if at == dim else 1 for at in range(places.dim())]
    numbers = torch.arange(places.shape[dim], device=places.device).reshape(shape).expand_as(places)
    return Other(
        "second-sort",
        lambda: torch.empty_like(places).scatter_(dim, places, numbers),
        [],
        found.shape,
        instead_of=result[1],
    )


def _searched(args: tuple, result, known) -> "Other | None":
    """Where one number has come to among all that were sorted: as many as are ahead of it."""
    found = known(args[0])
    if not _are_places(found) or not isinstance(args[1], torch.Tensor):
        return None
    numbers, one = found.args[0], args[1]
    dim, downwards = _sorting(found)
    if tuple(args[0].shape) != found.shape or one.dim() != len(found.shape) or one.shape[dim] != 1:
        return None
    place = result.to(torch.uint8).argmax(dim)

    def make():
        its = numbers.gather(dim, one.expand([*found.shape[:dim], 1, *found.shape[dim + 1 :]]))
        return (numbers > its if downwards else numbers < its).sum(dim)

    return Other("rank", make, [found], found.shape, instead_of=place)


def _are_places(found: "Link | None") -> bool:
    return found is not None and found.func in _SORTS and found.which == 1


def of_part(found: Link, tensor) -> "Other | None":
    """What could be in the place of an operator of whose result this part is read; None where no less would do."""
    if found.func in _SORTS:
        return _top(found, tensor)
    return _diagonal(found, tensor) if found.func in _PRODUCTS else None


def _diagonal(found: Link, tensor) -> "Other | None":
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


def _top(found: Link, tensor) -> "Other | None":
    """Of what was sorted a few are read, at one of its ends; None for more."""
    dim, downwards = _sorting(found)
    length, stride = found.shape[dim], found.strides[dim]
    along = next((tensor.shape[at] for at in range(tensor.dim()) if tensor.stride(at) == stride), 1)
    if tensor.numel() * length != prod(found.shape) * along:
        return None
    first = tensor.storage_offset() // stride % length
    count, at_end = first + along, False
    if count > length - first:
        count, at_end = length - first, True
    if count > _TOP * length:
        return None
    numbers = found.args[0]
    largest = downwards != at_end
    return Other(
        "top",
        lambda: numbers.topk(count, dim, largest=largest),
        [found],
        found.shape,
        instead_of=False,
        replaces_last=False,
    )
