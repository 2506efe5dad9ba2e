"""Loaders after their last iterator: in a job that has ended by itself hardly anything else leads to its data sets."""

import sys
import types
import weakref

import torch

from ..windows.tensor_sizes import array_type, size

_MOST = 8
"""Loaders, the latest: a job may make a new one in each step."""
_WALKS = 64
"""Data sets that are looked through, which takes up to a millisecond."""
_BYTES = 1 << 26
"""Of a data set that is kept from going, about."""
_OBJECTS = 2000
"""Looked at; what has more parts may go."""
_OF_MANY = 32
"""Elements of a longer container that stand for all."""
_RESOURCE = ("close", "__exit__", "__del__")
"""Whoever has one of these may be waited for: a file that is open can hinder others until it goes."""
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CONTAINERS = (list, tuple, dict, set)


class LastLoaders:
    """Of this process, by number."""

    def __init__(self, made_with) -> None:
        """`made_with`: gives what a loader was made with. A loader itself is never held: with it workers that it keeps
        would stay."""
        self.made_with = made_with
        self.known: dict = {}
        """What each was made with, or what gives the loader as long as there is one."""
        self.walks = 0

    def note(self, identity: int, loader) -> None:
        """It is about to be gone through."""
        if identity in self.known:
            return
        self.walks += 1
        made_with = self.made_with(loader)
        is_held = self.walks <= _WALKS and may_be_kept(made_with)
        self.known[identity] = made_with if is_held else weakref.ref(loader)
        while len(self.known) > _MOST:
            del self.known[next(iter(self.known))]

    def alive(self) -> dict:
        """What those were made with that there are still, and those whose data set is held."""
        found = {}
        for identity, known in self.known.items():
            if not isinstance(known, weakref.ref):
                found[identity] = known
            elif (loader := known()) is not None:
                found[identity] = self.made_with(loader)
        return found


def may_be_kept(one) -> bool:
    """Whether nobody would notice if it did not go: it is small, and nothing in it may be waited for.

    None of the job's code runs: of objects, what Python keeps of them is looked at.
    """
    left, seen = [(one, 1.0)], set()
    total = 0.0
    array = array_type()
    while left:
        one, times = left.pop()
        if id(one) in seen or isinstance(one, _CODE):
            continue
        seen.add(id(one))
        kind = type(one)
        if kind in _TENSORS:
            total += times * size(one)
        elif kind is array:
            left += [(list(one.flat[:_OF_MANY]), one.size / _OF_MANY)] if one.dtype.hasobject else []
            total += times * one.nbytes
        elif kind in _CONTAINERS:
            parts = list(one.values() if kind is dict else one)
            step = max(1, len(parts) // _OF_MANY)
            left += [(part, times * step) for part in parts[::step]]
            total += times * sys.getsizeof(one)
        elif issubclass(kind, torch.Tensor) or any(hasattr(kind, name) for name in _RESOURCE):
            return False  # of another kind of tensor nobody knows what it holds
        else:
            left += [(part, times) for part in getattr(one, "__dict__", {}).values()]
            total += times * object.__sizeof__(one)
        if total > _BYTES or len(seen) > _OBJECTS:
            return False
    return True
