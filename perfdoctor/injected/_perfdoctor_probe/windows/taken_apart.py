"""Tensors that gradients flow through and that are taken apart by an index or a slice at a time.

Each such part is a node of its own in the backward pass: it fills a tensor as large as the whole with zeros, puts the
part's gradient in, and adds that to what the other parts have. `unbind` and `split` are one node for all parts, which
joins their gradients once.

What such a node takes is timed apart, on tensors of the same size: under a dispatch mode autograd adds into a new
tensor each time, and without one it adds in place (96 parts of 1.8 MB: 15 ms and 6).
"""

import time

import torch

from ..rows import milliseconds
from .equivalents import row

PARTS = (torch.ops.aten.select.int, torch.ops.aten.slice.Tensor)
_FEW = 8
"""Parts of one tensor in a step: fewer cost little more than joining them once."""
_SMALL = 4
"""A part is so many times smaller than the whole, at least."""
_MOST = 20_000
"""Parts that are looked at: each takes about 15 us."""
_ONCE = 2
"""What joining all gradients takes: as much as so many parts do, each of which writes the whole once and adds it."""
_ROUNDS = 20
"""The fastest counts: in a step that has as many such tensors their memory is warm."""
_clock = time.perf_counter_ns


class TakenApart:
    """Follows such parts through the steps of a window."""

    def __init__(self) -> None:
        self.reads: "dict[tuple, list]" = {}
        """By step and tensor."""
        self.count = 0

    def is_full(self) -> bool:
        """No more are looked at."""
        return self.count >= _MOST

    def read(self, made, whole, part) -> None:
        """`made` is the call that took `part` out of `whole`."""
        if _SMALL * part.numel() > whole.numel():
            return
        self.count += 1
        node = whole.grad_fn
        source = id(whole) if node is None else node._sequence_nr()
        self.reads.setdefault((made.step, source, tuple(whole.shape), whole.dtype), []).append(made)

    def rows(self, steps: int, sites) -> "list[dict]":
        """By line, per step of `steps`, as of `Equivalents`."""
        by_line: "dict[tuple, list]" = {}
        each_ns: "dict[tuple, float]" = {}
        for (_, _, *kind), reads in self.reads.items():
            passed = sum(one.node.task >= 0 for one in reads)
            if passed >= _FEW and reads[0].stack:
                shape, dtype = kind
                if (shape, dtype) not in each_ns:
                    each_ns[shape, dtype] = _part_ns(shape, dtype)
                by_line.setdefault(reads[0].stack[-1], []).append((shape, passed, each_ns[shape, dtype]))
        return [self._row(line, found, steps, sites) for line, found in by_line.items()]

    @staticmethod
    def _row(line: tuple, found: list, steps: int, sites) -> dict:
        now_ms = milliseconds(sum(count * ns for _, count, ns in found), steps)
        other_ms = milliseconds(sum(_ONCE * ns for *_, ns in found), steps)
        at = sites.number((*line, None))
        return row("taken-apart", at, len(found) / steps, found[0][0], (0.0, now_ms), (0.0, other_ms))


def _part_ns(shape: tuple, dtype) -> float:
    """What the backward pass does for one part of a tensor, but for the part itself."""
    whole, times = torch.zeros(shape, dtype=dtype), []
    for _ in range(_ROUNDS):
        began = _clock()
        part = torch.zeros(shape, dtype=dtype)
        whole.add_(part)
        del part
        times.append(_clock() - began)
    return min(times)
