"""Tensors and arrays that get larger because what they held is carried on: `bank = torch.cat([bank, x])`.

A batch of longer sequences is larger too. So a tensor counts only with some values at its start, or at its end, that it
had at the census before; with rows from all over it that are where they were, counted from either end; or where both
are sorted and values from all over the one are in the other (`torch.unique`).
"""

import sys

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Of a subclass, asking for a size may run the job's code."""
NUMBERS = "biuf"
"""Kinds of an array's numbers; comparing others may run the job's code."""
_READ = 8
"""Values at either end, and rows: of a tensor on a device they are copied from there."""
_OF_ROW = 32
"""Values of such a row, from all over it: of images most may be the same in all of them."""
_DIFFERENT = 3
"""Among these rows, at least."""


def size(one) -> int:
    """Bytes that it shows; 0 for what is not looked into."""
    if type(one) in _PLAIN:
        return one.numel() * one.element_size() if one.layout is torch.strided and not one.is_meta else 0
    return one.nbytes if one.dtype.kind in NUMBERS else 0


def array_type():
    """Of numpy, where the job has imported it."""
    return vars(sys.modules["numpy"]).get("ndarray") if "numpy" in sys.modules else None


def ends(one) -> "tuple[list, list]":
    """The values that it starts and ends with, in its first and its last row."""
    first = last = one.detach() if type(one) in _PLAIN else one
    while first.ndim > 1:
        first, last = first[0], last[-1]
    return (first[:_READ].tolist(), last[-_READ:].tolist()) if first.ndim else ([], [])


def is_carried(before: "tuple[list, list]", now: "tuple[list, list]") -> bool:
    """Whether either end is as it was; padding, which is the same everywhere, says nothing."""
    return any(one == other and len(set(one)) > 1 for one, other in zip(before, now))


def rows(one) -> "tuple[int, dict[int, tuple]]":
    """How many it has, and values of some, from all over it; of fewer than are looked at, none."""
    count = len(one) if one.ndim else 0
    places = range(0, count, count // _READ) if count >= _READ else ()
    return count, {at: _some(one, at) for at in places}


def are_there(one, before: "tuple[int, dict[int, tuple]]") -> bool:
    """Whether rows of what was smaller are in it, as far from its start or from its end; rows that are all the same
    say nothing."""
    count, values = before
    if len(set(values.values())) < _DIFFERENT or not one.ndim or len(one) < count:
        return False
    return any(all(_some(one, at + first) == some for at, some in values.items()) for first in {0, len(one) - count})


def _some(one, at: int) -> tuple:
    """Values of a row, an odd number apart, so that they do not lie in one column of an image."""
    row = (one.detach() if type(one) in _PLAIN else one)[at].reshape(-1)
    return tuple(row[:: max(1, len(row) // _OF_ROW) | 1].tolist())


def spread(one) -> list:
    """Values from all over it, where it is a row that rises throughout, in the host's memory; else none."""
    if one.ndim != 1 or len(one) < 2 * _READ or (type(one) in _PLAIN and one.device.type != "cpu"):
        return []
    values = one.detach() if type(one) in _PLAIN else one
    if not bool((values[1:] > values[:-1]).all()):
        return []
    return values[:: len(values) // _READ].tolist()


def holds(one, values: list) -> bool:
    """Whether all of these are in it; of none, nothing is known."""
    return bool(values) and all(bool((one == value).any()) for value in values)
