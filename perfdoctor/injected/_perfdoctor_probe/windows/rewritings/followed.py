"""What is kept of operators whose results others may be made of otherwise, and the way back from those."""

import torch

from .spreads import WIDER, is_wide, numbers, spread

_aten = torch.ops.aten
PRODUCTS = (_aten.mm.default, _aten.bmm.default)
SORTS = (_aten.sort.default, _aten.sort.stable)
SHUFFLES = (_aten.randperm.default, _aten.randperm.generator)
_SCALINGS = (_aten.mul.Tensor, _aten.div.Tensor)
LAYERS = (_aten.mm.default, _aten.addmm.default)
_ADDITIONS = (_aten.add.Tensor, _aten.add_.Tensor)
RESIZES = tuple(
    getattr(_aten, f"upsample_{name}")
    for name in "nearest1d nearest2d nearest3d linear1d bilinear2d trilinear3d bicubic2d".split()
)
"""Each channel by itself, and linear in its numbers."""
CONVOLUTION = _aten.convolution.default
GATHERED = (_aten.index.Tensor, _aten.index_select.default, _aten.embedding.default)
ONES_WRITTEN = _aten.scatter_.value
"""Into what is to be a one-hot matrix."""
UNFOLD = _aten.im2col.default
COMPLEX_TRANSFORM = _aten._fft_c2c.default
MADE_COMPLEX, PADDED = _aten._to_copy.default, _aten.constant_pad_nd.default
_WRITTEN_OUT = (_aten.repeat.default, _aten.clone.default, _aten.div.Tensor)
"""What may have repeated numbers in memory; its link has the view that repeats them."""


BY_NUMBER = frozenset(
    getattr(getattr(_aten, name), overload)
    for name, overload in {
        "add": "Tensor",
        "sub": "Tensor",
        "rsub": "Scalar",
        "mul": "Tensor",
        "div": "Tensor",
        "pow": "Tensor_Scalar",
        "sqrt": "default",
        "rsqrt": "default",
        "exp": "default",
        "tanh": "default",
        "erf": "default",
        "sigmoid": "default",
        "clamp": "default",
        "clamp_min": "default",
        "mean": "dim",
        "sum": "dim_IntList",
        "var": "correction",
        "std": "correction",
        "amax": "default",
        "max": "dim",
        "_softmax": "default",
    }.items()
)
"""What functions are made of by hand: by number, or along the rows of one tensor."""


class Link:
    """What an operator has made, as far as what is made of it could be made otherwise. It keeps that operator's
    arguments, which are smaller, until the step is over."""

    __slots__ = (
        "args",
        "copies",
        "func",
        "is_passing",
        "kwargs",
        "made",
        "order",
        "shape",
        "source",
        "strides",
        "used_by",
        "which",
    )

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
        self.copies: "list[Link]" = []
        """Arguments that were written out for it."""
        self.is_passing = False
        """Its arguments may be as large: they are let go a few operators later."""


class Other:
    """A way to make what an operator has made."""

    __slots__ = (
        "as_it_is",
        "backward",
        "constant",
        "in_each_step",
        "instead_of",
        "is_for_gradient",
        "is_ill_conditioned",
        "kind",
        "links",
        "make",
        "part",
        "replaces_last",
        "shape",
    )

    def __init__(
        self,
        kind: str,
        make,
        links: "list[Link]",
        shape,
        backward=None,
        instead_of=None,
        replaces_last: bool = True,
        part: tuple = (),
        in_each_step: bool = False,
        constant: tuple = (),
        is_for_gradient: bool = False,
        is_ill_conditioned: bool = False,
        as_it_is=None,
    ) -> None:
        self.kind = kind
        self.make = make
        """Makes it; called once or twice, at once. None: that takes as long, and only the backward pass is spared."""
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
        self.part = part
        """Which part is read, where others could be read of the same thing; () where it does not matter."""
        self.in_each_step = in_each_step
        """Whether it counts only where each step makes it anew: else later steps may read the rest."""
        self.constant = constant
        """Tensors that have to hold the same in each step: something is made of them once."""
        self.is_for_gradient = is_for_gradient
        """It may take as long as what it replaces: the backward pass takes less."""
        self.is_ill_conditioned = is_ill_conditioned
        """Whether rounding may differ by far more than that of a sum."""
        self.as_it_is = as_it_is
        """Makes it as the job does, and is timed beside the other where that spares only a part of the same arithmetic:
        what is timed a second time finds its numbers in the caches. None where it spares most."""


def links(func, args: tuple, kwargs: dict, result, made, known) -> "list[tuple]":
    """What it has made that is worth following, as tensors and links. `known`: the link of a tensor, or None."""
    if func in PRODUCTS or func in LAYERS:
        if result.numel() >= max(args[-2].numel(), args[-1].numel()) and not kwargs:
            return [(result, Link(func, args, made, result))]
    elif func is _aten._log_softmax.default:
        source = known(args[0])
        if source is not None and score_factors(source) is not None and args[0].dim() == 2 and args[1] in (1, -1):
            return [(result, Link(func, args, made, result, source))]
    elif func in _ADDITIONS and isinstance(args[1], torch.Tensor) and args[1].dim() == 1:
        source = known(args[0])
        if source is not None and source.func in LAYERS and not kwargs:
            return [(result, Link(func, args, made, result, source))]
    elif func is _aten.cat.default or (func.overloadpacket in RESIZES and not kwargs) or _is_differentiated(func):
        return [(result, Link(func, args, made, result))]
    elif func is _aten.linalg_inv_ex.default:
        return [(result[0], Link(func, args, made, result[0]))]
    elif func in GATHERED:
        wide = result.numel() >= WIDER * args[0].numel() or result.shape == args[0].shape
        if result.dim() >= 2 and result.is_floating_point() and wide:
            return [(result, Link(func, args, made, result))]
    elif func in SORTS:
        return _sorted_links(func, args, kwargs, result, made)
    elif func in SHUFFLES:
        return [(result, Link(func, args, made, result))]
    elif func in _SCALINGS and _is_number(args[1]):
        source = known(args[0])
        if source is not None and _is_matrix(source):
            return [(result, Link(func, args, made, result, source))]
    elif _is_square(func, args) and is_of_parameter(args):
        return [(result, Link(func, args, made, result))]
    elif _is_square(func, args) or func in (_aten.abs.default, _aten.add.Scalar):
        source = known(args[0])
        wide = source is not None and source.func is _aten.sub.Tensor and not source.is_passing
        if wide and tuple(args[0].shape) == source.shape:
            return [(result, Link(func, args, made, result, source))]
    elif func in (_aten.mul.Tensor, _aten.sub.Tensor):
        found = _weighted(func, args, made, result, known) or _pair(func, args, made, result, known)
        if found is not None:
            return [(result, found)]
    elif func is ONES_WRITTEN:
        return [(result, Link(func, (), made, result))] if result.dim() > 1 else []
    elif func is COMPLEX_TRANSFORM:
        found = Link(func, args, made, result)
        found.is_passing = True
        return [(result, found)]
    elif func is MADE_COMPLEX and result.is_complex() and not args[0].is_complex():
        return [(result, Link(func, args, made, result))]
    elif func is PADDED and (source := known(args[0])) is not None and source.func is MADE_COMPLEX:
        return [(result, Link(func, args, made, result, source))]
    elif func is _aten._to_copy.default:
        source = known(args[0])
        if source is not None and source.func is ONES_WRITTEN:
            return [(result, Link(func, (), made, result, source))]
    elif func is UNFOLD and args[0].dim() == 4:
        return [(result, Link(func, args, made, result))]
    elif func is _aten.clone.default and (source := known(args[0])) is not None and source.func is UNFOLD:
        return [(result, Link(func, args, made, result, source))]
    elif func in _WRITTEN_OUT:
        (one,), _ = _few(args[:1], known)  # which others may read, such as for their lengths
        repeated = spread(func, (one, *args[1:]), result)
        if repeated is not None and result.numel() >= WIDER * numbers(repeated):
            return [(result, Link(func, (repeated,), made, result))]
    return _of_function(func, args, kwargs, result, made)


def _of_function(func, args: tuple, kwargs: dict, result, made) -> "list[tuple]":
    """A part of what may be a function made by hand."""
    one = result[0] if func is _aten.max.dim else result
    if func not in BY_NUMBER or not one.is_floating_point():
        return []
    found = Link(func, args, made, one)
    found.kwargs, found.is_passing = kwargs, True
    return [(one, found)]


def _sorted_links(func, args: tuple, kwargs: dict, result, made) -> "list[tuple]":
    """Numbers and their places: who reads either reads what was sorted."""
    numbers, places = (Link(func, args, made, one) for one in result)
    numbers.kwargs = places.kwargs = kwargs
    places.which, places.used_by = 1, numbers.used_by
    return [(result[0], numbers), (result[1], places)]


def _is_differentiated(func) -> bool:
    """Of a convolution: its backward pass needs its arguments anyway, and an evaluation has none."""
    return func is CONVOLUTION and torch.is_grad_enabled()


def is_of_parameter(args: tuple) -> bool:
    """Whether the first argument is a parameter that learns."""
    return isinstance(args[0], torch.nn.Parameter) and args[0].requires_grad


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.dim() == 0)


def _is_matrix(found: Link) -> bool:
    return behind(found)[0].func in PRODUCTS


def _is_square(func, args: tuple) -> bool:
    if func is _aten.pow.Tensor_Scalar:
        return args[1] == 2
    return func is _aten.mul.Tensor and args[0] is args[1]


def _weighted(func, args: tuple, made, result, known) -> "Link | None":
    """Rows that were picked, each by a number that does not learn."""
    for source, weights in ((known(args[0]), args[1]), (known(args[1]), args[0])):
        if func is not _aten.mul.Tensor or source is None or source.func not in GATHERED or len(source.shape) != 2:
            continue
        if isinstance(weights, torch.Tensor) and weights.shape == (source.shape[0], 1) and not weights.requires_grad:
            return Link(func, args, made, result, source)
    return None


def _pair(func, args: tuple, made, result, known) -> "Link | None":
    """A product or difference of two, of which each is repeated for the other, also where that was written out."""
    both, copies = _few(args[:2], known)
    if not is_wide(both, result):
        return None
    found = Link(func, (*both, *args[2:]), made, result)
    found.copies = copies
    return found


def _few(args: tuple, known) -> "tuple[list, list[Link]]":
    """Arguments, those that were written out as the views that repeat them; and the links of these."""
    views, copies = [], []
    for one in args:
        found = known(one)
        if found is not None and found.func in _WRITTEN_OUT and tuple(one.shape) == found.shape:
            views.append(found.args[0])
            copies.append(found)
        else:
            views.append(one)
    return views, copies


def gathered(found: Link) -> tuple:
    """What was looked up along its first dimension, and where; None twice for another look-up."""
    if found.func is _aten.index.Tensor:
        table, places = found.args
        plain = len(places) == 1 and places[0].dtype in (torch.int64, torch.int32)
        return (table, places[0]) if plain else (None, None)
    if found.func is _aten.embedding.default:
        return found.args[:2]
    table, dim, places = found.args
    return (table, places) if dim == 0 else (None, None)


def part_of(tensor) -> tuple:
    """Which part of its memory a view shows."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def behind(found: Link) -> "tuple[Link, float, list[Link]]":
    """The link that numbers were multiplied to, their product, and all links on the way."""
    factor, way = 1.0, [found]
    while found.func in _SCALINGS and found.source is not None:
        number = float(found.args[1])
        factor = factor * number if found.func is _aten.mul.Tensor else factor / number
        found = found.source
        way.append(found)
    return found, factor, way


def factors(func, args: tuple, kwargs: dict) -> "tuple | None":
    """Both matrices of a product and what is added to it; None for any other operator."""
    if func is _aten.mm.default:
        return args[0], args[1], None
    if func is _aten._sparse_addmm.default and not kwargs.get("beta", 1):
        return args[1], args[2], None
    return (args[1], args[2], args[0]) if func is _aten.addmm.default and not kwargs else None


def score_factors(found: Link) -> "tuple | None":
    """The matrices of a product and what was added to it, by the same operator or the next one."""
    if found.func in LAYERS:
        return factors(found.func, found.args, {})
    if found.func in _ADDITIONS and found.source is not None:
        return *factors(found.source.func, found.source.args, {})[:2], found.args[1]
    return None
