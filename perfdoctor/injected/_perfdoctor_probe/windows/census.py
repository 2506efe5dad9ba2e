"""What Python holds at one moment, by type: how many objects, their own bytes, and those of tensors' and arrays' data.

None of the job's code runs: sizes are what Python itself has of an object, and no `__sizeof__` of the job's is asked.
"""

import collections
import gc
import time

import torch

from .tensor_sizes import array_type

_LONGEST_NS = 2_000_000_000
"""Of a census; the rest of the objects is left out then, which is said. One takes about 2 us."""
_LOOKED_AT = 4096
"""Objects between two looks at the clock."""
_SIZES = {
    kind: kind.__sizeof__
    for kind in (list, dict, set, frozenset, tuple, bytearray, collections.deque, collections.OrderedDict)
}
_HEADER = 16
"""Bytes of the collector's, in front of each object that it knows."""
_OF_ARRAY = 112
"""Bytes of an array of NumPy's without its data."""
_PLAIN = {kind: kind.__sizeof__ for kind in (str, bytes, bytearray, float, int, complex)}
"""Objects that the collector does not know, which are met where others hold them."""


class Census:
    """Of all that the collector knows, and of the plain values and arrays that these hold."""

    def __init__(self, besides: "Census | None" = None) -> None:
        """`besides` is another one, which is none of the job's objects."""
        self.types: "dict[type, list[int]]" = {}
        """Count, own bytes, bytes of data."""
        self.data: "set[int]" = set()
        """Addresses of data, each counted once however many views of it there are."""
        self.is_cut = False
        self.array = array_type()
        self.sizes: "dict[type, object]" = {}
        """What measures an object of a type."""
        self._take({number for census in (self, besides) if census is not None for number in census.own()})

    def own(self) -> "set[int]":
        """What it consists of, by `id()`."""
        parts = (self, self.__dict__, self.types, self.data, self.sizes, *self.types.values())
        return set(map(id, parts))

    def _take(self, ours: "set[int]") -> None:
        met: "set[int]" = set()
        ours |= {id(met), id(ours)}
        began = time.perf_counter_ns()
        objects = gc.get_objects()
        for number, one in enumerate(objects):
            if not number % _LOOKED_AT and time.perf_counter_ns() - began > _LONGEST_NS:
                self.is_cut = True
                return
            if id(one) in ours:
                continue
            kind = type(one)
            measure = self.sizes.get(kind) or self._measure(kind)
            size = _HEADER + (measure if type(measure) is int else measure(one))
            self._count(kind, size, tensor_bytes(one, self.data) if issubclass(kind, torch.Tensor) else 0)
            for inside in gc.get_referents(one):
                kind = type(inside)
                plain = _PLAIN.get(kind)
                if (plain is not None or kind is self.array) and id(inside) not in met:
                    met.add(id(inside))
                    if plain is not None:
                        self._count(kind, plain(inside), 0)
                    else:
                        self._count(kind, _OF_ARRAY, _array_bytes(inside, self.array, self.data))

    def _measure(self, kind: type):
        """The container's own measure, or that of the one it is derived from; else what all of a type have in common:
        torch and Python have types (generators) whose length says something else."""
        above = type.__dict__["__mro__"].__get__(kind)
        found = next((_SIZES[one] for one in above if one in _SIZES), None)
        self.sizes[kind] = found or type.__dict__["__basicsize__"].__get__(kind)
        return self.sizes[kind]

    def _count(self, kind: type, size: int, data: int) -> None:
        sums = self.types.get(kind)
        if sums is None:
            sums = self.types[kind] = [0, 0, 0]
        sums[0] += 1
        sums[1] += size
        sums[2] += data


def tensor_bytes(tensor, known: "set[int]") -> int:
    """Bytes of its storage, where this is the first view of it; `known` has the others."""
    try:
        storage = tensor.untyped_storage()
        return _once(storage._cdata, storage.nbytes(), known)
    except (NotImplementedError, RuntimeError):  # sparse and wrapped ones have none of their own
        return 0


def _array_bytes(array, kind: type, known: "set[int]") -> int:
    while type(array.base) is kind:
        array = array.base
    return _once(id(array), array.nbytes, known) if array.base is None else 0


def _once(address: int, size: int, known: "set[int]") -> int:
    if address in known:
        return 0
    known.add(address)
    return size
