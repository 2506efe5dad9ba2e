"""Long columns of whole numbers as few bytes, and back.

A column is constant, or its smallest value is taken off (of neighbours' differences, where these are smaller), and what
remains is written byte plane by byte plane, the low bytes of all entries first: noise is in the low ones, and the
others compress to almost nothing. Reading one of 10,000 entries takes about 0.1 ms.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from .model import Ints

_LEVEL = 6
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Packed:
    """A column as it lies in a file."""

    n: int
    least: int
    """Added to every entry, or to every difference."""
    first: int | None = None
    """The first entry, where the others are differences from the one before."""
    unit: int = 1
    """What the entries count."""
    width: int = 0
    """Bytes of an entry; 0 where all are the same."""
    planes: bytes = b""


def pack(column: Ints, unit: int = 1) -> Packed:
    """`column`, in units of that many. What is rounded is the running total: no sum of neighbours is off by more than a
    unit, and no zero becomes anything else."""
    if unit > 1:
        totals = np.concatenate([[0], np.cumsum(column)])
        column = np.diff((totals + unit // 2) // unit)
    n = len(column)
    if n == 0:
        return Packed(0, 0)
    differences = np.diff(column)
    if n > 1 and np.ptp(differences) < np.ptp(column):
        return _planes(differences, n, int(column[0]), unit)
    return _planes(column, n, None, unit)


def _planes(values: Ints, n: int, first: int | None, unit: int) -> Packed:
    least = int(values.min())
    above = values - least
    most = int(above.max())
    if most == 0:
        return Packed(n, least, first, unit)
    width = next(width for width in _WIDTHS if most < 1 << 8 * width)
    planes = np.ascontiguousarray(above.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T)
    return Packed(n, least, first, unit, width, zlib.compress(planes.tobytes(), _LEVEL))


def unpack(packed: Packed) -> Ints:
    """The column. Raises ValueError or zlib.error where the bytes are damaged."""
    count = packed.n - (packed.first is not None)
    if packed.width == 0:
        # One number stands for all of them.
        values = np.full(max(0, count), packed.least, np.int64)
    else:
        bound = count * packed.width
        planes = zlib.decompressobj().decompress(packed.planes, bound + 1)
        if len(planes) != bound:
            raise ValueError(f"a column of {packed.n} entries has {len(planes)} bytes")
        *lower, highest = np.frombuffer(planes, np.uint8).reshape(packed.width, count)
        values = highest.astype(np.int64)
        for plane in reversed(lower):
            values <<= 8
            values |= plane
        values += packed.least
    if packed.first is not None:
        values = np.concatenate([[packed.first], packed.first + np.cumsum(values)])
    return values * packed.unit if packed.unit > 1 else values
