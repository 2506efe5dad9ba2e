"""A product of queries and keys that waits for what becomes of it.

Scale, mask, softmax and dropout are noted; a product with values then is `scaled_dot_product_attention`. Whatever else
a model does with it makes the tensor after all, by the operators that the model called.
"""

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from . import einsums

_PRODUCTS = (
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.bmm,
)
_SOFTMAX = (torch.softmax, functional.softmax, torch.Tensor.softmax)
_DROPOUT = (functional.dropout, torch.dropout)
_SCALED = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__)
_DIVIDED = (torch.div, torch.Tensor.div, torch.Tensor.__truediv__)
_ADDED = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
_MASKED = (torch.masked_fill, torch.Tensor.masked_fill)
_HIDDEN = -1e4
"""A score of this or less is a key that is not to be seen; models write -inf, -1e9 or the type's least number."""


def product(function, args, kwargs, fused):
    """`function(*args)`; open where it looks like queries times keys: keys are transposed."""
    if function in _PRODUCTS and len(args) == 2 and not kwargs and all(type(arg) is torch.Tensor for arg in args):
        queries, keys = args
        if (
            queries.dim() == keys.dim()
            and queries.dim() in (3, 4)
            and queries.shape[:-2] == keys.shape[:-2]
            and queries.is_floating_point()
            and keys.stride(-2) == 1
            and keys.shape[-1] > 1
        ):
            return Scores(queries, keys, fused)
    elif function is torch.einsum and len(args) == 3 and not kwargs:
        factors = einsums.scores(*args)
        if factors is not None:
            return Scores(*factors, fused, made=args)
    return function(*args, **kwargs)


class Fusing(TorchFunctionMode):
    """Leaves products open that look like queries times keys."""

    def __init__(self, fused, recomputed) -> None:
        """`fused()` is called for each attention that went through the fused operator; `recomputed()` says whether what
        is called now will be called again by somebody who leaves nothing open."""
        super().__init__()
        self.fused = fused
        self.recomputed = recomputed

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = product(function, args, kwargs or {}, self.fused)
        return made.value() if type(made) is Scores and self.recomputed() else made


def without_weights(args: tuple, kwargs: dict) -> "tuple[tuple, dict] | None":
    """Arguments of `nn.MultiheadAttention` that ask for its output alone; None where these do."""
    if not (args[4] if len(args) > 4 else kwargs.get("need_weights", True)):
        return None
    if len(args) > 4:
        return (*args[:4], False, *args[5:]), kwargs
    return args, {**kwargs, "need_weights": False}


class Scores:
    """In the place of the product. No tensor, but torch's functions and a tensor's methods take it for one."""

    def __init__(self, queries, keys, fused, made=None) -> None:
        self._queries, self._keys, self._fused = queries, keys, fused
        self._made = made
        """What the model gave `torch.einsum`; None where it called a product."""
        self._scale = 1.0
        self._mask = None
        """To be added, or of bool: True where a key is seen."""
        self._soft = False
        self._dropout = 0.0
        self._steps = ()
        """What the model called so far, to be called after all."""
        self._tensor = None

    def value(self):
        """The tensor. From the first time on it is one for good: the model may write into it."""
        if self._tensor is None:
            # The mode that left it open may still be in force.
            with torch._C.DisableTorchFunction():
                tensor = torch.einsum(*self._made) if self._made else torch.matmul(self._queries, self._keys)
                for function, args, kwargs in self._steps:
                    tensor = function(tensor, *args, **kwargs)
            self._tensor = tensor
        return self._tensor

    def _next(self, function, args, kwargs, **changes) -> "Scores":
        after = Scores(self._queries, self._keys, self._fused, self._made)
        for name in ("_scale", "_mask", "_soft", "_dropout"):
            setattr(after, name, changes.get(name, getattr(self, name)))
        after._steps = (*self._steps, (function, args, kwargs))
        return after

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        after = None
        if isinstance(first, Scores):
            after = first._taken(function, args[1:], kwargs)
        elif len(args) == 2 and isinstance(args[1], Scores) and function in (*_ADDED, *_SCALED):
            after = args[1]._taken(function, (first,), kwargs)
        elif function is torch.einsum and len(args) == 3 and isinstance(args[1], Scores):
            after = args[1]._summed(first, args[2])
        return function(*_value(args), **_value(kwargs)) if after is None else after

    def _taken(self, function, args, kwargs):
        """What `function` makes of it; None where it makes something else."""
        if self._tensor is not None:
            return None
        if self._soft:
            return self._after_softmax(function, args, kwargs)
        if function in _SOFTMAX:
            dim = kwargs.get("dim", args[0] if args else None)
            of_type = kwargs.get("dtype")
            if dim in (-1, self._queries.dim() - 1) and of_type in (None, self._queries.dtype):
                return self._next(function, args, kwargs, _soft=True)
        elif self._mask is not None or kwargs:
            return None
        elif function in _MASKED and len(args) == 2:
            if args[0].dtype == torch.bool and _is_number(args[1]) and args[1] <= _HIDDEN:
                return self._next(function, args, kwargs, _mask=~args[0])
        elif len(args) == 1 and _is_number(args[0]):
            if function in _SCALED:
                return self._next(function, args, kwargs, _scale=self._scale * args[0])
            if function in _DIVIDED:
                return self._next(function, args, kwargs, _scale=self._scale / args[0])
        elif function in _ADDED and len(args) == 1 and type(args[0]) is torch.Tensor:
            alike = args[0].dtype == self._queries.dtype
            return self._next(function, args, kwargs, _mask=args[0]) if alike else None
        return None

    def _after_softmax(self, function, args, kwargs):
        if function in _DROPOUT and not self._dropout:
            rate = kwargs.get("p", args[0] if args else 0.5)
            training = kwargs.get("training", args[1] if len(args) > 1 else True)
            if not kwargs.get("inplace", False):
                return self._next(function, args, kwargs, _dropout=float(rate) if training else 0.0)
        elif function in _PRODUCTS and len(args) == 1 and type(args[0]) is torch.Tensor:
            return self._attended(args[0])
        return None

    def _summed(self, equation, values):
        """The product with values as an `einsum`; None where it is something else."""
        if self._tensor is not None or not self._soft or type(values) is not torch.Tensor:
            return None
        orders = einsums.attended(equation, self._queries.dim(), values)
        result = self._attended(values.permute(orders[0])) if orders else None
        return None if result is None else result.permute(orders[1])

    def _attended(self, values):
        if values.shape[:-2] != self._queries.shape[:-2] or values.dtype != self._queries.dtype:
            return None
        tensors = self._queries, self._keys.transpose(-2, -1), values
        mask, flat = self._mask, values.dim() == 3
        if flat:
            # The fused kernels know batches of heads only.
            tensors = tuple(tensor.unsqueeze(0) for tensor in tensors)
            mask = mask.unsqueeze(0) if mask is not None and mask.dim() == 3 else mask
        self._fused()
        result = functional.scaled_dot_product_attention(
            *tensors, attn_mask=mask, dropout_p=self._dropout, scale=self._scale
        )
        return result.squeeze(0) if flat else result

    def __setitem__(self, place, value) -> None:
        self.value()[place] = value

    def __getattr__(self, name):
        method = getattr(torch.Tensor, name)
        if callable(method) and not name.endswith("_"):
            return lambda *args, **kwargs: Scores.__torch_function__(method, (), (self, *args), kwargs)
        return getattr(self.value(), name)


def _operator(name: str):
    method = getattr(torch.Tensor, name)

    def call(self, *args):
        return Scores.__torch_function__(method, (), (self, *args))

    return call


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv matmul rmatmul neg pow getitem lt le gt ge eq ne len iter bool float"
).split():
    setattr(Scores, f"__{_name}__", _operator(f"__{_name}__"))


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _value(item):
    """With tensors in place of scores, in containers too."""
    if isinstance(item, Scores):
        return item.value()
    if type(item) is dict:
        return {name: _value(inner) for name, inner in item.items()}
    return type(item)(_value(inner) for inner in item) if type(item) in (list, tuple) else item
