"""What is wrapped anew again and again: a function around another one of the same code, an object around its like.

`model.forward = checked(model.forward)` before each epoch, `train = ConcatDataset([train, more])`, `env = Timed(env)`:
no container gets longer, but each call goes through one layer more. A layer is known by what encloses it on the way
from a name: the nearest function or object around it, closures, lists and dictionaries in between left out.
"""

import types

import torch

_BETWEEN = 3
"""Closures, lists, dictionaries and bound methods from a layer to the next one, at most."""
LEAST = 3
"""Layers: two of a kind are common (a module in a module)."""
_MOST_LINES = 40
"""Of a layer's own that are told."""
_TOLD = 3
_VALUES = frozenset((list, tuple, dict, set, str, bytes, int, float, complex, bool, type(None), type, types.MethodType))


def layers(held) -> int:
    """Of the same kind around this one, itself included; 0 for what wraps nothing."""
    kind = of(held.one)
    if kind is None:
        return 0
    above = held.above
    for _ in range(_BETWEEN + 1):
        if above is None:
            break
        if of(above.one) is kind:
            return above.layers + 1
        above = above.above
    return 1


def of(one) -> "object | None":
    """What makes two layers alike: a function's code, an object's class; None for values, tensors and containers."""
    kind = type(one)
    if kind is types.FunctionType:
        return one.__code__ if one.__closure__ else None
    # A class with a metaclass of its own has a hash of its own, perhaps.
    if (type(kind) is type and kind in _VALUES) or issubclass(kind, torch.Tensor):
        return None
    return kind


def told(deeper: list, lines) -> "list[dict]":
    """Of trends, each with the innermost layer: the deepest first."""
    found = []
    for trend, held in sorted(deeper, key=lambda pair: -pair[0].size)[:_TOLD]:
        is_function = type(held.one) is types.FunctionType
        codes = [held.one.__code__] if is_function else _methods(type(held.one))
        own = [code for code in codes if not lines.is_library(code)]
        found.append(
            {
                "name": trend.path,
                "is_dataset": issubclass(type(held.one), torch.utils.data.Dataset),
                "layers": trend.size,
                "per_step": trend.per_step,
                "site": lines.wraps(held, trend.path),
                "uses": [lines.sites.at(code, line) for code in own for line in _lines(code)][:_MOST_LINES],
            }
        )
    return found


def maker(one) -> str:
    """What is called to make a layer: `checked`, for the function that it returns; else its class."""
    if type(one) is types.FunctionType:
        return one.__code__.co_qualname.split(".<locals>")[0].rpartition(".")[2]
    return type(one).__name__


def _methods(kind) -> list:
    values = type.__dict__["__dict__"].__get__(kind).values()
    return [value.__code__ for value in list(values) if type(value) is types.FunctionType]


def _lines(code) -> "list[int]":
    return sorted({line for *_, line in code.co_lines() if line is not None and line != code.co_firstlineno})
