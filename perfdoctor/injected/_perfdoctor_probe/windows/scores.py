"""What is computed from the outputs of forward passes on held-out data, and whether training needs it.

An output that goes into an operator that a backward pass may go through, or into the backward pass itself, is no score
but a part of training: pseudo-labels, weights of samples. Numbers that the job reads from it are not followed; a search
along a line needs them, and trains on the very data that it evaluates.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..hooks.held_out import tensors


class Scores:
    """Follows them from operator to operator, by the storages that hold them."""

    def __init__(self) -> None:
        self.storages: "dict[int, StorageWeakRef]" = {}
        self.passes = 0
        """Forward passes whose output is followed."""
        self.spent_ns = 0
        self.is_used = False
        self.given: "dict[int, StorageWeakRef]" = {}
        """What these passes are given."""
        self.is_trained_on = False
        """A backward pass may go through an operator that reads some of it."""

    def made(self, arguments: tuple, output) -> None:
        """A forward pass on held-out data has made this output of them."""
        before = len(self.storages)
        with torch._C.DisableTorchFunction():
            _note(self.given, arguments)
            _note(self.storages, output)
        self.passes += len(self.storages) > before

    def ended(self, args: tuple, kwargs: dict, result, took_ns: int, has_node: bool) -> None:
        """An operator has run. `has_node`: a backward pass may go through it."""
        if not self.storages:
            return
        read = {one.untyped_storage()._cdata for one in tensors((args, kwargs))}
        trains = (has_node and torch.is_grad_enabled()) or torch._C._current_graph_task_id() >= 0
        if trains and not read.isdisjoint(self.given):
            self.is_trained_on = True
        if read.isdisjoint(self.storages):
            return
        self.spent_ns += took_ns
        self.is_used = self.is_used or trains
        _note(self.storages, result)

    def summary(self) -> dict:
        """Times are ms of one forward pass's output."""
        ms = self.spent_ns / 1e6 / self.passes if self.passes else 0.0
        how = {"scores_used": self.is_used, "trained_on": self.is_trained_on}
        return {"followed": self.passes, "scores_ms": ms, **how}


def _note(known: "dict[int, StorageWeakRef]", value) -> None:
    """The storages of the tensors in it. While a weak reference is there, no other storage has its address."""
    for one in tensors(value):
        storage = one.untyped_storage()
        if storage._cdata not in known:
            known[storage._cdata] = StorageWeakRef(storage)
