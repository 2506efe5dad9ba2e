"""Tensors in float64, or of pairs of such numbers, that share the memory of NumPy's arrays, which are of that type
unless somebody says otherwise, or were computed of one alone; and the lines that made them so."""

import functools

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..changes import as_its_caller

WIDE = (torch.float64, torch.complex128)
_LEAST = 2
"""Numbers: a few frequencies make all that they are multiplied with float64."""
_MOST = 256
"""Tensors that are known at once: a data set makes one for each sample."""


class Doubles:
    """Knows where such a tensor was made, as long as it lives."""

    def __init__(self, sites) -> None:
        self.sites = sites
        self.made: "dict[int, tuple[StorageWeakRef, tuple | None]]" = {}
        """A line, by the storage."""
        self.left = _MOST
        """Of them, until those that are gone are forgotten."""
        self.lines: "dict[int, set[tuple]]" = {}
        """Those that made so many numbers: a constant keeps its number of them from the array to the buffer."""
        self.samples: "dict[tuple, set[tuple]]" = {}
        """Those that made such samples, one of them or all of a data set's, by a sample's shape."""

    def following(self, from_numpy, guarded):
        """`torch.from_numpy` as it is, and what it makes noted."""
        note = guarded("doubles", self._note)

        @functools.wraps(from_numpy)
        def call(array):
            # Of memory that nobody may write to torch warns, once.
            silent = getattr(getattr(array, "flags", None), "writeable", True)
            result = from_numpy(array) if silent else as_its_caller(from_numpy, array)
            if result.dtype in WIDE:
                note(result)
            return result

        return call

    def _note(self, tensor) -> None:
        if self.left <= 0 or tensor.numel() < _LEAST:
            return
        storage, place = tensor.untyped_storage(), self.sites.place(2)
        self.made[storage._cdata] = StorageWeakRef(storage), place
        if place is not None and len(self.lines) < _MOST:
            self.lines.setdefault(tensor.numel(), set()).add(place)
            for shape in (_shape(tensor), _shape(tensor)[1:]):
                self.samples.setdefault(shape, set()).add(place)
        self.left -= 1
        if not self.left:
            self.made = {number: held for number, held in self.made.items() if not held[0].expired()}
            self.left = _MOST - len(self.made)

    def origin(self, tensor) -> int:
        """The line, as a site; -1 where it is none of these. Of a tensor with memory of its own, the only line that
        made one of as many numbers, else the only one that made samples of which it is a batch."""
        if tensor.dtype not in WIDE:
            return -1
        reference, place = self.made.get(tensor.untyped_storage()._cdata, (None, None))
        if reference is None or reference.expired():
            sample = _shape(tensor)[1:]
            lines = self.lines.get(tensor.numel()) or (self.samples.get(sample) if sample else None) or ()
            (place,) = lines if len(lines) == 1 else (None,)
        return -1 if place is None else self.sites.number(place)


def _shape(tensor) -> "tuple[int, ...]":
    """Without dimensions of length 1, which come and go on the way to an operator."""
    return tuple(size for size in tensor.shape if size > 1)
