"""Tensors that gradients flow through and that are taken apart by an index or a slice at a time.

Each such part is a node of its own in the backward pass: it fills a tensor as large as the whole with zeros, puts the
part's gradient in, and adds that to what the other parts have. `unbind` and `split` are one node for all parts, which
joins their gradients once.
"""

import torch

from ..rows import milliseconds

PARTS = (torch.ops.aten.select.int, torch.ops.aten.slice.Tensor)
_FEW = 8
"""Parts of one tensor in a step: fewer cost little more than joining them once."""
_SMALL = 4
"""A part is so many times smaller than the whole, at least."""
_MOST = 20_000
"""Parts that are looked at: each takes about 15 us."""
_ONCE = 2
"""What joining all gradients takes: as much as so many parts do, each of which writes the whole once and adds it."""


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
        self.reads.setdefault((made.step, source, tuple(whole.shape)), []).append(made)

    def rows(self, steps: int, sites, passed_ns) -> "list[dict]":
        """By line, per step of `steps`, as of `Equivalents`. `passed_ns`: what the backward pass did for a call."""
        by_line: "dict[tuple, list]" = {}
        for (_, _, shape), reads in self.reads.items():
            if len(reads) >= _FEW and reads[0].stack:
                by_line.setdefault(reads[0].stack[-1], []).append((shape, reads))
        return [self._row(line, found, steps, sites, passed_ns) for line, found in by_line.items()]

    @staticmethod
    def _row(line: tuple, found: list, steps: int, sites, passed_ns) -> dict:
        spent = [(sum(map(passed_ns, reads)), len(reads)) for _, reads in found]
        site = sites.number((*line, None))
        return {
            "kind": "taken-apart",
            "at": site,
            "then_at": site,
            "times_per_step": len(found) / steps,
            "shape": list(found[0][0]),
            "forward_ms": 0.0,
            "backward_ms": milliseconds(sum(ns for ns, _ in spent), steps),
            "other_forward_ms": 0.0,
            "other_backward_ms": milliseconds(sum(_ONCE * ns / count for ns, count in spent), steps),
        }
