"""Backward passes of one step that go through the same graph, one for each loss: their sum would go through it once.

A pass can be one with the pass before it where nobody has touched or read a gradient in between: those that both add to
are the same objects, unwritten, and no operator has read one.
"""

import torch

from ..changes import Changes
from ..hooks.held_out import tensors
from ..rows import milliseconds
from .autograd_graph import nodes


class _Row:
    """Operators that passes of one line have called again."""

    __slots__ = ("calls", "spent_ns")

    def __init__(self) -> None:
        self.calls = self.spent_ns = 0


class PassesAgain:
    """Of the steps from `open` to `close`. Told of each operator of the backward pass, and of what others read."""

    def __init__(self, sites, loop) -> None:
        self.sites = sites
        self.loop = loop
        self.changes = Changes()
        self.step = -1
        self.number = 0
        """Of the backward pass that runs, or ran last."""
        self.first = 0
        """Of the passes that could be one with it."""
        self.at = -1
        self.filled: "list[tuple]" = []
        """Parameters that the pass before fills, their gradients as it left them, and how often those were written."""
        self.addresses: "set[int]" = set()
        """Where these gradients lie."""
        self.is_read = False
        self.rows: "dict[int, _Row]" = {}

    def open(self) -> None:
        """Listen from here on."""
        original = torch.autograd._engine_run_backward

        def run_backward(outputs, weights, retain, create, inputs, *args, **kwargs):
            leaves = None
            if kwargs.get("accumulate_grad") and torch._C._current_graph_task_id() < 0:
                try:
                    leaves = self._begins(outputs, retain and not inputs)
                except Exception:  # a graph of an exotic kind: this pass stands alone
                    self.first = self.number
            result = original(outputs, weights, retain, create, inputs, *args, **kwargs)
            if leaves is not None:
                self._ended(leaves)
            return result

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)

    def close(self) -> None:
        """Not any more; nothing of the job's is kept."""
        self.changes.take_back()
        self.filled, self.addresses = [], set()

    def _begins(self, outputs, retains: bool) -> "list | None":
        """A pass; the parameters that it fills, where another one may go through its graph."""
        self.number += 1
        step = self.loop.timeline.step
        untouched = all(one.grad is grad and grad._version == version for one, grad, version in self.filled)
        if step != self.step or not self.filled or self.is_read or not untouched:
            self.first = self.number
        self.step, self.at = step, self.sites.here(3)
        self.filled, self.addresses, self.is_read = [], set(), False
        return _leaves(outputs) if retains else None

    def _ended(self, leaves: list) -> None:
        filled = [(one, one.grad) for one in leaves if isinstance(one.grad, torch.Tensor)]
        self.filled = [(one, grad, grad._version) for one, grad in filled]
        self.addresses = {grad.untyped_storage().data_ptr() for _, grad in filled}

    def passed(self, before: int, took_ns: int) -> None:
        """An operator of a node that pass number `before` has come through, 0 for none."""
        if self.first <= before < self.number:
            row = self.rows.setdefault(self.at, _Row())
            row.spent_ns += took_ns
            row.calls += 1

    def reads(self, args: tuple) -> None:
        """An operator outside of the backward pass is called with these."""
        if self.addresses and not self.is_read:
            self.is_read = any(one.untyped_storage().data_ptr() in self.addresses for one in tensors(args))

    def summary(self, steps: int) -> "list[dict]":
        """By line, the dearest first, per step of `steps`."""
        found = sorted(self.rows.items(), key=lambda item: -item[1].spent_ns)
        return [
            {"at": line, "ops_per_step": row.calls / steps, "ms_per_step": milliseconds(row.spent_ns, steps)}
            for line, row in found
        ]


def _leaves(outputs) -> "list | None":
    """The tensors whose gradients a pass from these fills; None of too large a graph."""
    found = nodes([one.grad_fn for one in outputs if one.grad_fn is not None])
    return None if found is None else [one.variable for one in found if hasattr(one, "variable")]
