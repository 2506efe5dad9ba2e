"""Functions that torch has in one operator, made of several: activations, normalisations, softmax and its logarithm.

What a chain of operators by number has been made of is followed back to the tensor that all of it comes from. Whether
the chain is the function is not read off it: that is tried, on the job's own numbers.
"""

from math import prod

import torch

from .followed import BY_NUMBER, Link, Other

_aten = torch.ops.aten
_SPREADS = (_aten.var.correction, _aten.std.correction)
_CURVES = {_aten.tanh.default: "tanh", _aten.erf.default: "none"}
"""What `gelu` calls itself by these."""
_LONGEST = 16
"""Operators in a chain."""
_EPSILON = 1e-6


def instead(func, args: tuple, result, known) -> "Other | None":
    """The function that a chain is, if its last operator, which has made `result`, may be the last of one."""
    if not result.is_floating_point():
        return None
    if func is _aten.log.default:
        return _log_softmax(args, known)
    if not all(isinstance(one, torch.Tensor) for one in args[:2]):
        return None
    if func is _aten.div.Tensor:
        return _softmax(args, known) or _normalised(args, result, known)
    return _sigmoid_weighted(args, result, known) or _gelu(args, result, known) or _normalised(args, result, known)


# -- activations


def _sigmoid_weighted(args: tuple, result, known) -> "Other | None":
    inner = next((one for one in _links(args, known) if one.func is _aten.sigmoid.default), None)
    x = None if inner is None else inner.args[0]
    chain = None if x is None else _chain(args, x, known)
    if chain is None:
        return None
    return Other("silu", lambda: _aten.silu(x), chain, result.shape, lambda made: _aten.silu_backward(made, x))


def _gelu(args: tuple, result, known) -> "Other | None":
    curve = _behind(args, tuple(_CURVES), known)
    inner = None if curve is None else known(curve.args[0])
    if inner is None:
        return None
    if curve.func is _aten.tanh.default:  # of x + 0.04 x^3
        cube = _behind(curve.args, (_aten.pow.Tensor_Scalar,), known)
        x = cube.args[0] if cube is not None else None
    else:  # of x / sqrt(2)
        x = inner.args[0] if inner.func in (_aten.div.Tensor, _aten.mul.Tensor) and inner.args else None
    chain = None if x is None else _chain(args, x, known)
    if chain is None:
        return None
    how = _CURVES[curve.func]
    return Other(
        "gelu",
        lambda: _aten.gelu(x, approximate=how),
        chain,
        result.shape,
        lambda made: _aten.gelu_backward(made, x, approximate=how),
    )


# -- softmax


def _softmax(args: tuple, known) -> "Other | None":
    """Powers over their sum."""
    powers, total = (known(one) for one in args[:2])
    if powers is None or powers.func is not _aten.exp.default or not powers.args or total is None or not total.args:
        return None
    if total.func is not _aten.sum.dim_IntList or len(total.args[1]) != 1 or known(total.args[0]) is not powers:
        return None
    moved = known(powers.args[0])
    x = moved.args[0] if moved is not None and moved.func is _aten.sub.Tensor and moved.args else powers.args[0]
    chain = _chain(args, x, known)
    if chain is None:
        return None
    return _of_rows("softmax", _aten._softmax, _aten._softmax_backward_data, x, total.args[1][0], chain)


def _log_softmax(args: tuple, known) -> "Other | None":
    inner = _behind(args, (_aten._softmax.default,), known)
    x = None if inner is None else inner.args[0]
    chain = None if x is None else _chain(args, x, known)
    if chain is None:
        return None
    return _of_rows("log-softmax", _aten._log_softmax, _aten._log_softmax_backward_data, x, inner.args[1], chain)


def _of_rows(kind: str, function, gradient_of, x, dim: int, chain: "list[Link]") -> Other:
    """Either of them, along a dimension; its backward pass reads what it has made."""
    made: list = []

    def make():
        made[:] = [function(x, dim, False)]
        return made[0]

    def backward(gradient):
        return gradient_of(gradient, made[0], dim, x.dtype)

    return Other(kind, make, chain, x.shape, backward)


# -- normalisations


def _normalised(args: tuple, result, known) -> "Other | None":
    """Less its mean and over its spread, along the last dimensions; with weights, or without."""
    mean = _behind(args, (_aten.mean.dim,), known)
    if mean is None or not mean.args[1]:
        return None
    x = mean.args[0]
    along = sorted(dim % x.dim() for dim in mean.args[1])
    sizes = list(x.shape[along[0] :])
    if tuple(x.shape) != tuple(result.shape) or along != list(range(x.dim() - len(along), x.dim())):
        return None
    weights: list = []
    chain = _chain(args, x, known, weights)
    if chain is None or len(chain) < 3 or [list(one.shape) for one in weights] not in ([], [sizes]):
        return None
    spread = next((one for one in chain if one.func in _SPREADS), None)
    is_sample = spread is not None and spread.kwargs.get("correction", 1) != 0
    factor = (1 - 1 / prod(sizes)) ** 0.5 if is_sample else 1.0
    weight, made = (weights or [None])[0], []

    def make():
        made[:] = _aten.native_layer_norm(x, sizes, weight, None, _EPSILON)
        return made[0] if factor == 1.0 else made[0] * factor

    def backward(gradient):
        mask = [True, weight is not None, False]
        return _aten.native_layer_norm_backward(gradient, x, sizes, *made[1:], weight, None, mask)[0]

    return Other("layer-norm", make, chain, result.shape, backward)


# -- chains


def _links(args: tuple, known) -> "list[Link]":
    """Of the arguments that are part of a chain."""
    found = (known(one) for one in args if isinstance(one, torch.Tensor))
    return [one for one in found if one is not None and one.func in BY_NUMBER and one.args]


def _behind(args: tuple, funcs: tuple, known) -> "Link | None":
    """The nearest operator of these that the arguments have been made with."""
    met, reached = 0, _links(args, known)
    while reached and met < _LONGEST:
        for one in reached:
            if one.func in funcs:
                return one
        met += len(reached)
        reached = [inner for one in reached for inner in _links(one.args, known)]
    return None


def _chain(args: tuple, x, known, weights: "list | None" = None) -> "list[Link] | None":
    """What lies between `x` and a call with these arguments, the last first; None where anything else goes into it,
    but for single numbers and `weights`, one for each number of a row."""
    found: "list[Link]" = []

    def is_of_x(one) -> bool:
        if not isinstance(one, torch.Tensor) or _is_same(one, x):
            return True
        link = known(one)
        if link is not None and any(link is other for other in found):
            return True
        if link is None or link.func not in BY_NUMBER or not link.args:
            if weights is not None and type(one) is torch.nn.Parameter and one.dim():
                weights.append(one)
                return True
            return one.numel() == 1
        if len(found) == _LONGEST or not all(map(is_of_x, link.args)):
            return False
        found.append(link)
        return True

    return found[::-1] if all(map(is_of_x, args)) and found else None


def _is_same(one, other) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
