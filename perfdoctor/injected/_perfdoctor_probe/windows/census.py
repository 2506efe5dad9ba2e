"""What Python holds at one moment, by type: how many objects, their own bytes, and those of tensors' and arrays' data.

None of the job's code runs: sizes are what Python itself has of an object, and no `__sizeof__` of the job's is asked.
"""

import collections
import gc
import time

import torch

from .tensor_sizes import array_type

_LONGEST_NS = 2_000_000_000
"""Of a census; the rest of the objects is left out then, which is said. 10 million objects take about as long."""
_LOOKED_AT = 4096
"""Objects between two looks at the clock."""
_SIZES = {
    kind: kind.__sizeof__
    for kind in (list, dict, set, frozenset, tuple, bytearray, collections.deque, collections.OrderedDict)
}
_HEADER = 16
"""Bytes of the collector's, in front of each object that it knows."""
_PLAIN = {kind: kind.__sizeof__ for kind in (str, bytes, bytearray, float, int, complex)}
"""Objects that the collector does not know, which are met where others hold them."""


class Census:
    """Of all that the collector knows, and of the plain values and arrays that these hold."""

    def __init__(self, each=None) -> None:
        """`each` is called with every object, its bytes and those of its data."""
        self.types: "dict[type, list[int]]" = {}
        """Count, own bytes, bytes of data."""
        self.data: "set[int]" = set()
        """Addresses of data, each counted once however many views of it there are."""
        self.is_cut = False
        self.each = each
        self.array = array_type()
        self._take()

    def _take(self) -> None:
        ours = {id(self), id(self.__dict__), id(self.types), id(self.data)}
        met: "set[int]" = set()
        began = time.perf_counter_ns()
        objects = gc.get_objects()
        for number, one in enumerate(objects):
            if not number % _LOOKED_AT and time.perf_counter_ns() - began > _LONGEST_NS:
                self.is_cut = True
                return
            if id(one) in ours:
                continue
            kind = type(one)
            measure = _SIZES.get(kind)
            size = _HEADER + (measure(one) if measure is not None else object.__sizeof__(one))
            self._count(kind, one, size, self._tensor(one) if issubclass(kind, torch.Tensor) else 0)
            for inside in gc.get_referents(one):
                kind = type(inside)
                plain = _PLAIN.get(kind)
                if (plain is not None or kind is self.array) and id(inside) not in met:
                    met.add(id(inside))
                    if plain is not None:
                        self._count(kind, inside, plain(inside), 0)
                    else:
                        self._count(kind, inside, object.__sizeof__(inside), self._array(inside))

    def _count(self, kind: type, one, size: int, data: int) -> None:
        sums = self.types.get(kind)
        if sums is None:
            sums = self.types[kind] = [0, 0, 0]
        sums[0] += 1
        sums[1] += size
        sums[2] += data
        if self.each is not None:
            self.each(one, size, data)

    def _tensor(self, tensor) -> int:
        """Bytes of its storage, where this is the first view of it."""
        try:
            storage = tensor.untyped_storage()
            return self._once(storage._cdata, storage.nbytes())
        except (NotImplementedError, RuntimeError):  # sparse and wrapped ones have none of their own
            return 0

    def _array(self, array) -> int:
        while type(array.base) is self.array:
            array = array.base
        return self._once(id(array), array.nbytes) if array.base is None else 0

    def _once(self, address: int, size: int) -> int:
        if address in self.data:
            return 0
        self.data.add(address)
        return size
