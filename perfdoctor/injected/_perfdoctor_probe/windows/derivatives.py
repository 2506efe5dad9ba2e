"""Derivatives of the same outputs that are asked for one after the other: each call goes through the whole graph again,
where one goes through it once for all.

Where such a call is met first, its graph is gone through a few times more, by itself and together with those before it,
and what it would take less is known. Nothing of the job's is changed by that: a pass that is asked for derivatives
returns them, and fills no gradient.
"""

import time

import torch

from ..changes import Changes
from ..rows import milliseconds
from .autograd_graph import nodes

_BUDGET_NS = 1_000_000_000
"""Of trying in all."""
_LEAST_NS = 50_000
"""Of a call: what takes less has nothing to give."""
_TIMES = 2
"""The shorter of so many passes counts."""
_SUM = "SumBackward0"
_clock = time.perf_counter_ns


class _Asked:
    """Derivatives of one output in this step."""

    __slots__ = ("by", "created", "inputs", "together_ns")

    def __init__(self, by, created: bool) -> None:
        self.by = by
        """What they are weighed with: the tensor, or None for ones."""
        self.created = created
        """A graph of them is recorded."""
        self.inputs: list = []
        self.together_ns = 0
        """What all of these take in one pass."""


class _Row:
    """Calls of one line."""

    __slots__ = ("calls", "created", "saved_ns", "spent_ns")

    def __init__(self) -> None:
        self.calls = self.saved_ns = self.spent_ns = 0
        self.created = False


class Derivatives:
    """Of the steps from `open` to `close`."""

    def __init__(self, sites, loop, tried) -> None:
        """`tried` is called after each try, which records nodes that are none of the job's."""
        self.sites = sites
        self.loop = loop
        self.after_trying = tried
        self.changes = Changes()
        self.step = -1
        self.asked: "dict[tuple, _Asked]" = {}
        """Of this step, by the node and the number of the output."""
        self.known: "dict[tuple, tuple[int, int]]" = {}
        """Of a call: nanoseconds that it takes, and that it would not, by its line and what it asks for."""
        self.rows: "dict[int, _Row]" = {}
        self.spent_ns = 0

    def open(self) -> None:
        """Listen from here on."""
        original = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            if not kwargs.get("accumulate_grad"):
                try:
                    with torch._C._DisableTorchDispatch():
                        self._asks(original, *args[:5])
                except Exception:  # a graph of an exotic kind: this call is passed over
                    pass
            return original(*args, **kwargs)

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)

    def close(self) -> None:
        """Not any more; nothing of the job's is kept."""
        self.changes.take_back()
        self.asked = {}

    def _asks(self, original, outputs, weights, retain, create, inputs) -> None:
        """Derivatives of `outputs` by `inputs`, which are about to be computed."""
        if self.loop.timeline.step != self.step:
            self.step, self.asked = self.loop.timeline.step, {}
        if len(outputs) != 1 or not inputs or outputs[0].grad_fn is None or torch._C._current_graph_task_id() >= 0:
            return
        node, number = _source(outputs[0])
        by = None if weights[0] is None or bool((weights[0] == 1).all()) else weights[0]
        before = self.asked.get((node, number))
        if before is None or before.by is not by or before.created != create:
            before = self.asked[node, number] = _Asked(by, create)
            before.inputs = list(inputs)
            return
        everything = list({id(one): one for one in (*before.inputs, *inputs)}.values())
        line = self.sites.here(3)
        key = (line, create, tuple(tuple(one.shape) for one in (*before.inputs, *inputs)))
        if key not in self.known:
            self.known[key] = self._tried(original, before, outputs, weights, list(inputs), everything)
        before.inputs = everything
        took_ns, saved_ns = self.known[key]
        row = self.rows.setdefault(line, _Row())
        row.calls += 1
        row.spent_ns += took_ns
        row.saved_ns += saved_ns
        row.created = row.created or create

    def _tried(self, original, before: _Asked, outputs, weights, inputs: list, everything: list) -> "tuple[int, int]":
        """Nanoseconds of this call alone, and by how much one for `everything` takes less than two."""
        told = any(one._backward_hooks for one in everything)
        if told or self.spent_ns > _BUDGET_NS or not _is_plain(outputs[0].grad_fn):
            return 0, 0

        def passes(wanted: list) -> int:
            times = []
            for _ in range(_TIMES):
                start = _clock()
                original(outputs, weights, True, before.created, tuple(wanted), True, accumulate_grad=False)
                times.append(_clock() - start)
            return min(times)

        began = _clock()
        try:
            took_ns = passes(inputs)
            if took_ns < _LEAST_NS:
                return took_ns, 0
            earlier_ns = before.together_ns or passes(before.inputs)
            before.together_ns = passes(everything)
        finally:
            self.spent_ns += _clock() - began
            self.after_trying()
        return took_ns, max(0, min(took_ns, earlier_ns + took_ns - before.together_ns))

    def summary(self, steps: int) -> "list[dict]":
        """By line, the dearest first, per step of `steps`."""
        found = sorted(self.rows.items(), key=lambda item: -item[1].saved_ns)
        return [
            {
                "at": line,
                "calls_per_step": row.calls / steps,
                "ms_per_step": milliseconds(row.spent_ns, steps),
                "saved_ms": milliseconds(row.saved_ns, steps),
                "created": row.created,
            }
            for line, row in found
            if row.saved_ns
        ]


def _source(output) -> tuple:
    """The node that made it, and which of its outputs it is; of a sum of all numbers what is summed up."""
    node = output.grad_fn
    if node.name() == _SUM and output.dim() == 0:
        return node.next_functions[0]
    return node, output.output_nr


def _is_plain(node) -> bool:
    """Whether going through its graph runs none of the job's code, and the graph is not too large."""
    found = nodes([node])
    return found is not None and not any(isinstance(one, torch.autograd.function.BackwardCFunction) for one in found)
